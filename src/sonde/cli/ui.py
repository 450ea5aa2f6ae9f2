"""`sonde ui`: the runs of a folder in a browser."""

from __future__ import annotations

import os
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sonde import environment
from sonde.capture.show.data import TraceFiles
from sonde.cli.options.choose import choose, runs_dir
from sonde.errors import MissingExtra
from sonde.store.folder import RUN_FILE

if TYPE_CHECKING:
    from sonde.web.serve import WebServer

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@click.command(
    epilog="""\b
Example: sonde ui                                the runs in sonde-runs
Example: sonde ui train-3f2a                     one run
Example: sonde ui s3://bucket/runs/job-42        a pushed run
Example: sonde ui /data/experiments/sonde-runs --port 9000 --no-open"""
)
@click.argument("where", required=False, metavar="[DIR | RUN | URL]")
@click.option(
    "--port", type=click.IntRange(1, 65535), metavar="PORT", help="Port (default: the first free one from 8700)."
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen on. Others can then reach your runs with the token.",
)
@click.option("--token", metavar="TOKEN", help="Token that every request needs (default: a random one).")
@click.option("--no-open", is_flag=True, help="Do not open the browser.")
@click.option("--attached", is_flag=True, hidden=True, help="End when standard input ends.")
@click.option("--framed", is_flag=True, hidden=True, help="Let a notebook on this machine show the page in a cell.")
def command(
    where: str | None, port: int | None, host: str, token: str | None, no_open: bool, attached: bool, framed: bool
) -> None:
    """Show runs in the browser, live: from the verdict to the step, item and value.

    DIR is a folder of runs, RUN a run folder or a part of its name, URL a run that was pushed. Default: the folder of the
    setting `dir`. The server only reads, listens on this machine only, and ends with Ctrl-C.
    """
    serve(*meant(where), port=port, host=host, token=token, open_page=not no_open, attached=attached, framed=framed)


def serve(
    folder: Path,
    chosen: str | None,
    *,
    port: int | None = None,
    host: str = LOOPBACK[0],
    token: str | None = None,
    open_page: bool = True,
    attached: bool = False,
    framed: bool = False,
) -> None:
    """Serve a folder until Ctrl-C. `attached`: or until standard input ends."""
    try:
        from sonde.web.pages import HOW_TO_BUILD, built
        from sonde.web.serve import WebServer
    except ImportError as error:
        raise MissingExtra.of(error.name or "starlette", "ui", "sonde ui") from None
    if token is not None and (
        len(token) < 4 or not token.isascii() or not token.isprintable() or set(token) & set(' ;,"\\')
    ):
        raise click.UsageError("--token needs at least 4 characters, and no spaces, quotes, ; or ,")
    if not built():
        click.echo(HOW_TO_BUILD, err=True)
    site = WebServer(folder, chosen, host=host, port=port, token=token, framed=framed, traces=TraceFiles())
    if host not in LOOPBACK:
        click.echo(
            f"Listening on {host}: everyone who reaches this machine and has the token can read these runs.", err=True
        )
    click.echo(f"Sonde shows {folder} at {site.address}")
    if environment.over_ssh():
        click.echo(
            f"From your own machine: ssh -L {site.port}:127.0.0.1:{site.port} {environment.ssh_target()}, then open that address."
        )
    click.echo("Ctrl-C ends it.")
    if open_page and not environment.over_ssh():
        webbrowser.open(site.address)
    if attached:
        threading.Thread(target=_end_with_input, args=(site,), name="sonde input", daemon=True).start()
    site.run()


def _end_with_input(site: WebServer) -> None:
    while os.read(0, 4096):
        pass
    site.server.should_exit = True


def meant(where: str | None) -> tuple[Path, str | None]:
    """The folder to serve, and the run to open first."""
    if where is None:
        return runs_dir(None), None
    path = Path(where)
    if path.is_dir() and not (path / RUN_FILE).exists():
        return path, None
    found = choose(where, runs_dir(None)).resolve()
    return found.parent, found.name
