"""Who may ask: only pages that this server sent, opened by somebody who has the token, under a name that is ours.

A page of somebody else that is open in the same browser can send requests to this machine. It fails here four times:
it lacks the token, browsers say where a request comes from, a name that was made to lead here (DNS rebinding) is none
of ours, and answers allow no other origin to read them.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "::1")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# A report runs its own script, and may come from the run of somebody else: it gets an origin of its own.
REPORT_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; sandbox allow-scripts allow-popups"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
SAFE_METHODS = ("GET", "HEAD")
# What browsers say of requests that a page of ours makes, or that somebody types into the address.
OWN_SITES = ("same-origin", "none")
NO_TOKEN = "This address needs the token that vcuda app printed when it started: open the whole address from there."


class Guard:
    """A server behind these checks; ``port`` is known once it listens."""

    def __init__(self, app: ASGIApp, *, token: str, host: str) -> None:
        self.app, self.token, self.host = app, token, host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no other protocol is spoken here; the server closes the connection
        refusal = self._refusal(scope)

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await (refusal or self.app)(scope, receive, sent)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        port = (scope.get("server") or ("", 0))[1]
        host = headers.get("host", "")
        if not self._is_ours(host):
            return PlainTextResponse("This name does not lead to vcuda app.", 421)
        # A link from elsewhere may open the page, which then asks for everything itself.
        opens_page = scope["method"] == "GET" and scope["path"] == "/" and headers.get("sec-fetch-mode") == "navigate"
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        foreign = (origin is not None and origin != f"http://{host}") or (site is not None and site not in OWN_SITES)
        if foreign and not opens_page:
            return _refused("vcuda app answers only to its own page.", 403)
        cookie = f"vcuda-{port}"
        if scope["path"] == "/" and scope["method"] in SAFE_METHODS:
            given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
            if self._is_token(given):
                # Out of the address at once, where histories and screenshots would keep it.
                welcome = RedirectResponse("/", 303)
                welcome.set_cookie(cookie, self.token, httponly=True, samesite="strict", path="/")
                return welcome
        if not self._is_token(_cookie(headers.get("cookie", ""), cookie)):
            return PlainTextResponse(NO_TOKEN, 403) if scope["path"] == "/" else _refused(NO_TOKEN, 403)
        if scope["method"] not in SAFE_METHODS and origin is None and site is None:
            return _refused("This request does not say which page it comes from.", 403)
        return None

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self.token.encode())

    def _is_ours(self, host: str) -> bool:
        """Whether a Host header is an address of this server, and not a name that was made to lead here."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if self.host in LOOPBACK:
            return name in LOOPBACK
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in (*LOOPBACK, self.host.lower(), socket.gethostname().lower(), socket.getfqdn().lower())
        return True


def _refused(sentence: str, status: int) -> JSONResponse:
    return JSONResponse({"error": sentence}, status)


def _cookie(header: str, name: str) -> str:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value
