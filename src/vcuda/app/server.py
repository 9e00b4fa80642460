"""The server of ``vcuda app``: its addresses, and what each does. It imports nothing heavy."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from vcuda.app.folder import ASKED, Folder, safe_name, today
from vcuda.app.guard import REPORT_POLICY, Guard
from vcuda.app.jobs import Jobs, resume_arguments
from vcuda.app.workers import RefusedError, Workers
from vcuda.data.paths import existing_file
from vcuda.errors import ConfigError, DataError, RunError, VcudaError

STATIC = {
    "app.js": "text/javascript; charset=utf-8",
    "app.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
LARGEST_REQUEST = 5_000_000
UPLOAD_LIMIT = 2_000_000_000
EXAMPLES = {
    "sachs": "Proteins in 853 human cells, 11 columns of numbers: the best-known table of causal discovery",
    "sachs-experiments": "The same proteins in experiments that set one of them",
}

Answer = Callable[["App", Request], Awaitable[Response]]


class App:
    """What the addresses share: the folder, the fits, and the processes that answer."""

    def __init__(
        self, folder: Folder, *, jobs: int, upload_limit: int = UPLOAD_LIMIT, opened: str | None = None
    ) -> None:
        self.folder, self.upload_limit = folder, upload_limit
        # The table that the app begins with.
        self.opened = opened
        self.jobs, self.workers = Jobs(folder.path / ASKED, most=jobs), Workers()

    def table(self, name: str) -> str:
        """The path of a table, or the name of a bundled one."""
        if name in EXAMPLES:
            return name
        found = self.folder.tables().get(name)
        if found is None:
            raise DataError(f"there is no table {name!r} here any more; choose or upload it again")
        return str(found)


async def state(app: App, request: Request) -> Response:
    """Everything that the first screen shows."""
    from importlib.metadata import version

    tables = [
        {"name": name, "size": path.stat().st_size if path.is_file() else None}
        for name, path in app.folder.tables().items()
    ]
    return JSONResponse(
        {
            "version": version("vcuda"),
            "folder": str(app.folder.path),
            "tables": tables,
            "opened": app.opened,
            "examples": [{"name": name, "title": title} for name, title in EXAMPLES.items()],
            "runs": app.folder.runs(),
            "jobs": app.jobs.every(),
            "upload_limit": app.upload_limit,
        }
    )


async def upload(app: App, request: Request) -> Response:
    """Store a table; the body is the file itself."""
    name = request.query_params.get("name", "table.csv")
    length = request.headers.get("content-length", "")
    size = int(length) if length.isdecimal() else None
    try:
        path = await app.folder.store(name, request.stream(), size=size, most=app.upload_limit)
    except ClientDisconnect:
        raise DataError("the upload ended half-way: send it again") from None
    return JSONResponse({"table": path.name})


async def columns(app: App, request: Request) -> Response:
    """The columns of a table, with the kinds and left-out columns that somebody chose."""
    asked = await _content(request)
    options = _mapping(asked, "options")
    table = _text(asked, "table")
    return JSONResponse(await app.workers.ask("inspect", table=app.table(table), options=options))


async def knowledge(app: App, request: Request) -> Response:
    """Whether what is known can be true, and the file that says it."""
    asked = await _content(request)
    names = [str(name) for name in asked.get("names", [])]
    return JSONResponse(await app.workers.ask("check_knowledge", knowledge=_mapping(asked, "knowledge"), names=names))


async def read_knowledge(app: App, request: Request) -> Response:
    """What a knowledge file says."""
    asked = await _content(request)
    name = safe_name(_text(asked, "name"), "knowledge.toml")
    return JSONResponse(await app.workers.ask("read_knowledge", name=name, text=_text(asked, "text")))


async def fit(app: App, request: Request) -> Response:
    """Start a fit in a new run folder."""
    asked = await _content(request)
    name, options, question = _text(asked, "table"), _mapping(asked, "options"), _mapping(asked, "question")
    table = app.table(name)
    if question.get("kind") == "target":
        options["target"] = _text(question, "target")
    app.jobs.check_room()
    run = app.folder.new_run(str(asked.get("name") or Path(name).name.split(".")[0]))
    try:
        made = await app.workers.ask(
            "request",
            table=table,
            options=options,
            knowledge=asked.get("knowledge"),
            file=str(app.folder.knowledge_file(run.name)),
            run=str(run),
        )
        app.folder.note(run.name, {"table": name, "question": question, "when": today(), **made})
        app.jobs.start(run.name, made["words"][1:])
    except BaseException:
        with contextlib.suppress(OSError):
            run.rmdir()
        raise
    return JSONResponse({"run": run.name})


async def stop(app: App, request: Request) -> Response:
    """Stop a fit and keep what it has."""
    return JSONResponse(app.jobs.stop(request.path_params["run"]).to_json())


async def resume(app: App, request: Request) -> Response:
    """Go on with a fit that was stopped."""
    run = app.folder.run(request.path_params["run"])
    return JSONResponse(app.jobs.start(run.name, resume_arguments(run)).to_json())


async def progress(app: App, request: Request) -> Response:
    """Where a fit is."""
    name = request.path_params["run"]
    found = next((run for run in app.folder.runs() if run["name"] == name), None)
    job = app.jobs.get(name)
    if found is None and job is None:
        raise RunError(f"there is no run {name!r} in {app.folder.path}; choose another one")
    return JSONResponse({"run": found, "job": None if job is None else job.to_json()})


async def result(app: App, request: Request) -> Response:
    """What a run found."""
    run = app.folder.run(request.path_params["run"])
    asked = app.folder.asked(run.name)
    found = await app.workers.ask("result", run=str(run))
    return JSONResponse(found | {"asked": asked})


def _about(question: str, *names: str) -> Answer:
    """An address that passes names of columns on to a question about a run."""

    async def answer(app: App, request: Request) -> Response:
        run = app.folder.run(request.path_params["run"])
        given = {name: request.query_params.get(name, "") for name in names}
        for name, value in given.items():
            if not value:
                raise ConfigError(f"the question needs the name of a column under {name}")
        if question == "why":
            table = app.folder.asked(run.name).get("table")
            known = isinstance(table, str) and (table in EXAMPLES or table in app.folder.tables())
            given["data"] = app.table(table) if known else None  # type: ignore[assignment, arg-type]
        return JSONResponse(await app.workers.ask(question, run=str(run), **given))

    return answer


async def compare(app: App, request: Request) -> Response:
    """What changed between two runs."""
    run, other = (app.folder.run(request.path_params[name]) for name in ("run", "other"))
    return JSONResponse(await app.workers.ask("compare", run=str(run), other=str(other)))


async def download(app: App, request: Request) -> Response:
    """A file to keep; a report may also be looked at."""
    run, kind = app.folder.run(request.path_params["run"]), request.path_params["kind"]
    kinds = ("report", "python", "shell", "csv", "json", "dot", "graphml", "gml", "dagitty", "tetrad", "bif")
    if kind not in kinds:
        raise ConfigError(f"the app writes no {kind!r}; choose one of {', '.join(kinds)}")
    made = await app.workers.ask("download", run=str(run), kind=kind, asked=app.folder.asked(run.name))
    headers = {}
    if "look" not in request.query_params or kind != "report":
        name = quote(f"{run.name}-{kind}{made['ending']}")
        headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{name}"
    media = "text/html" if kind == "report" else "text/plain"
    if kind == "report":
        headers["Content-Security-Policy"] = REPORT_POLICY
    return Response(made["text"], media_type=media, headers=headers)


async def knowledge_file(app: App, request: Request) -> Response:
    """The knowledge file of a run."""
    run = app.folder.run(request.path_params["run"])
    file = app.folder.knowledge_file(run.name)
    if file.is_symlink() or not file.is_file():
        raise RunError(f"nothing was said about the causes in {run.name}: it has no knowledge file")
    name = quote(f"{run.name}-knowledge.toml")
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
    return Response(file.read_bytes(), media_type="text/plain", headers=headers)


async def page(app: App, request: Request) -> Response:
    return Response(_asset("index.html"), media_type="text/html")


async def static(app: App, request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        return Response("There is no such file.", 404, media_type="text/plain")
    return Response(_asset(name), media_type=STATIC[name])


@functools.cache
def _asset(name: str) -> bytes:
    return (files("vcuda.app") / "static" / name).read_bytes()


async def _content(request: Request) -> dict[str, Any]:
    """The body as JSON, read no further than is sensible."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_REQUEST:
            raise ConfigError(f"the request has more than {LARGEST_REQUEST / 1e6:.0f} MB")
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise ConfigError("the request is no JSON") from None
    if not isinstance(content, dict):
        raise ConfigError("the request is no JSON object")
    return content


def _text(content: dict[str, Any], name: str) -> str:
    if not isinstance(value := content.get(name), str):
        raise ConfigError(f"the request needs a text under {name}")
    return value


def _mapping(content: dict[str, Any], name: str) -> dict[str, Any]:
    if not isinstance(value := content.get(name) or {}, dict):
        raise ConfigError(f"the request needs an object under {name}")
    return dict(value)


def _route(app: App, path: str, answer: Answer, *, method: str = "GET") -> Route:
    async def endpoint(request: Request) -> Response:
        try:
            return await answer(app, request)
        except RefusedError as error:
            return JSONResponse({"error": str(error), **error.details}, 400)
        except VcudaError as error:
            return JSONResponse({"error": str(error)}, 400)
        except OSError as error:
            return JSONResponse({"error": f"the operating system reports: {error.strerror or error}"}, 500)

    return Route(path, endpoint, methods=[method])


def application(app: App, *, token: str, host: str) -> Guard:
    """The whole server as an ASGI application."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        # The first question is answered sooner when the libraries are there.
        warm = asyncio.create_task(app.workers.ask("ready"))
        warm.add_done_callback(lambda task: task.cancelled() or task.exception())
        yield
        warm.cancel()
        await app.jobs.close()
        await app.workers.close()

    get, post = functools.partial(_route, app), functools.partial(_route, app, method="POST")
    routes = [
        get("/", page),
        get("/static/{name}", static),
        get("/api/state", state),
        post("/api/tables", upload),
        post("/api/columns", columns),
        post("/api/knowledge", knowledge),
        post("/api/knowledge/read", read_knowledge),
        post("/api/fits", fit),
        get("/api/runs/{run}", result),
        get("/api/runs/{run}/progress", progress),
        post("/api/runs/{run}/stop", stop),
        post("/api/runs/{run}/resume", resume),
        get("/api/runs/{run}/effect", _about("effect", "cause", "outcome")),
        get("/api/runs/{run}/paths", _about("paths", "cause", "outcome")),
        get("/api/runs/{run}/why", _about("why", "cause", "effect")),
        get("/api/runs/{run}/drivers", _about("drivers", "target")),
        get("/api/runs/{run}/experiments", _about("experiments")),
        get("/api/runs/{run}/compare/{other}", compare),
        get("/api/runs/{run}/download/{kind}", download),
        get("/api/runs/{run}/knowledge", knowledge_file),
    ]
    return Guard(Starlette(routes=routes, lifespan=lifespan), token=token, host=host)


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 is any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    if os.name != "nt":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot listen at {host} port {port}: {reason}; give another --port or --host") from error
    return listener


def serve(
    folder: str | os.PathLike[str],
    *,
    table: str | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    jobs: int = 1,
    upload_limit: int = UPLOAD_LIMIT,
    on_ready: Callable[[str], None],
) -> None:
    """Serve until Ctrl-C; ``on_ready`` is called with the address when it listens."""
    if table is not None and table not in EXAMPLES and not Path(table).exists():
        existing_file(Path(table), also_known=EXAMPLES)
    place = Folder(folder, table=None if table in EXAMPLES else table)
    place.make()
    token = secrets.token_urlsafe(32)
    opened = table if table is None or table in EXAMPLES else Path(table).name
    app = App(place, jobs=jobs, upload_limit=upload_limit, opened=opened)
    listener = listening(host, port)
    number = listener.getsockname()[1]
    shown = "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    config = uvicorn.Config(
        application(app, token=token, host=host),
        log_level="critical",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="on",
        timeout_graceful_shutdown=2,
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                on_ready(f"http://{shown}:{number}/?token={token}")

    try:
        Server(config).run(sockets=[listener])
    finally:
        listener.close()
