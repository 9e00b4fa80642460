"""``vcuda app``: the package in a browser."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from vcuda import interrupts
from vcuda.cli.terminal import remarks, results, say, suggest
from vcuda.errors import MissingExtraError


def app(
    table: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="A table to begin with.", show_default=False)
    ] = None,
    folder: Annotated[
        Path, typer.Option("--folder", help="Where runs, uploaded tables and knowledge files are kept.")
    ] = Path("vcuda-runs"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 is any that is free.")] = 0,
    host: Annotated[
        str,
        typer.Option(
            help="The address to listen at. Any other than this machine's own lets others of your network ask, who "
            "must know the token; nothing is encrypted."
        ),
    ] = "127.0.0.1",
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Fits that run at once; the others wait.", show_default="half of the cores"),
    ] = None,
    upload_limit: Annotated[float, typer.Option(min=0.001, help="The largest upload, in GB.")] = 2.0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Open no browser; print the address only.")] = False,
) -> None:
    """Open the app: from a file to an answer in the browser, without writing code. Nothing leaves this machine.

    Runs are the same folders that vcuda fit writes. Ctrl-C ends the app; fits that are under way keep what they have.
    """
    try:
        from vcuda.app.server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("starlette", "uvicorn", "anyio"):
            raise
        raise MissingExtraError("starlette and uvicorn", "app", "vcuda app") from None

    def ready(address: str) -> None:
        suggest(results(), address, label="vcuda app is at")
        say(remarks(), "The address holds a token that nobody else should see. End the app with Ctrl-C.")
        if not no_browser:
            import webbrowser

            webbrowser.open(address)

    # The server answers Ctrl-C itself, and hands it on when it has ended.
    with interrupts.put_off(lambda: True):
        serve(
            folder,
            table=table,
            host=host,
            port=port,
            jobs=jobs or max((os.cpu_count() or 2) // 2, 1),
            upload_limit=int(upload_limit * 1e9),
            on_ready=ready,
        )
    say(remarks(), f"The app has ended. Its runs are in {folder}.")
