"""A headless Chromium for tests, spoken to over two pipes in its DevTools protocol, with nothing else to install."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 60.0


def installed() -> str | None:
    """The path of a browser, if there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of a browser; remembers every error of the console and every request."""

    def __init__(self, program: str) -> None:
        self._profile = tempfile.mkdtemp(prefix="browser-")
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-extensions",
            "--hide-scrollbars",
            f"--user-data-dir={self._profile}",
            "--remote-debugging-pipe",
        ]
        # The browser reads commands from descriptor 3 and answers on 4; the shell moves ours there.
        script = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", script, program, *options, "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._numbers = itertools.count(1)
        self._buffer = b""
        self._events: list[dict[str, Any]] = []
        self._session = ""
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events that come in between are kept."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(deadline - time.monotonic(), 0))
            part = os.read(self._in, 1 << 20) if ready else b""
            if not part:
                raise TimeoutError(f"the browser said nothing for {PATIENCE:.0f} s, or ended")
            self._buffer += part
        first, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(first)
        if "method" in message:
            self._events.append(message)
        return message

    def open(self, file: Path, *, width: int, height: int, fragment: str = "") -> None:
        """Show a file from disk in a window of this size, and forget what was heard before."""
        self.visit(file.resolve().as_uri() + fragment, width=width, height=height)

    def visit(self, address: str, *, width: int, height: int) -> None:
        """The same for any address."""
        self.call("Page.navigate", url="about:blank")
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self._events.clear()
        self.call("Page.navigate", url=address)
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._receive()
        # Two frames, so that everything is painted.
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def run(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str, code: int, text: str = "") -> None:
        """A key as from a keyboard, to whatever has the focus."""
        shared = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **shared)
        self.call("Input.dispatchKeyEvent", type="keyUp", **shared)

    def click(self, selector: str) -> None:
        """A click of the pointer on the middle of an element, wherever it stands."""
        place = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        self.click_at(*place)

    def click_at(self, x: float, y: float) -> None:
        """A click at a place of the window; like every pointer, it comes from somewhere."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Press the pointer at one place of the window, move it in steps, and release it at another."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=start[0], y=start[1])
        self.call("Input.dispatchMouseEvent", type="mousePressed", x=start[0], y=start[1], button="left", clickCount=1)
        for step in range(1, 6):
            x, y = (a + (b - a) * step / 5 for a, b in zip(start, end, strict=True))
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y, button="left", buttons=1)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=end[0], y=end[1], button="left", clickCount=1)

    def drop(self, selector: str, file: Path) -> None:
        """Drop a file from the desktop onto an element."""
        x, y = self.run(
            f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        data = {"items": [], "files": [str(file)], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.call("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)

    def pick(self, selector: str, value: str) -> None:
        """Choose an option of a select by typing it, as a keyboard does."""
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        for _ in range(300):
            if self.run(f"document.querySelector({json.dumps(selector)}).value") == value:
                return
            before = self.run(f"document.querySelector({json.dumps(selector)}).selectedIndex")
            wanted = self.run(
                f"[...document.querySelector({json.dumps(selector)}).options]"
                f".findIndex(option => option.value === {json.dumps(value)})"
            )
            assert wanted >= 0, f"{selector} has no option {value}"
            self.press(*(("ArrowDown", 40) if wanted > before else ("ArrowUp", 38)))
        raise AssertionError(f"{selector} cannot be set to {value}")

    def wait(self, expression: str, *, seconds: float = 120.0) -> None:
        """Until an expression of JavaScript is true; what the page shows is said where it never is."""
        deadline = time.monotonic() + seconds
        while not self.run(f"!!({expression})"):
            assert time.monotonic() < deadline, f"{expression}: {self.run('document.body.innerText')[:2000]}"
            time.sleep(0.1)

    def event(self, method: str, *, seconds: float = PATIENCE) -> dict[str, Any]:
        """The next event of a kind, which may have come already."""
        deadline = time.monotonic() + seconds
        while True:
            for at, heard in enumerate(self._events):
                if heard["method"] == method:
                    return self._events.pop(at)["params"]
            assert time.monotonic() < deadline, f"no {method} came"
            self.run("0")
            time.sleep(0.05)

    def screenshot(self) -> bytes:
        """What the window shows, as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def printed(self) -> bytes:
        """The page on paper, as PDF."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"])

    @property
    def complaints(self) -> list[str]:
        """Exceptions, errors and warnings of the console since the page was opened."""
        self.run("0")
        found = []
        for event in self._events:
            seen = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(seen["exceptionDetails"]))
            elif event["method"] == "Log.entryAdded" and seen["entry"]["level"] in ("error", "warning"):
                found.append(seen["entry"]["text"])
            elif event["method"] == "Runtime.consoleAPICalled" and seen["type"] in ("error", "warning", "assert"):
                found.append(str(seen["args"]))
        return found

    @property
    def requests(self) -> list[str]:
        """The addresses of everything that the page asked for."""
        self.run("0")
        return [
            event["params"]["request"]["url"]
            for event in self._events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def close(self) -> None:
        with contextlib.suppress(OSError, TimeoutError, RuntimeError):
            self._session = ""
            self.call("Browser.close")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)
        shutil.rmtree(self._profile, ignore_errors=True)
