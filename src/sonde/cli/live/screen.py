"""Watches a run: on the screen, or line by line where there is no terminal."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import click

from sonde.analysis.exits import CRASHED, FINISHED
from sonde.analysis.live.run import GONE, RECORDING, STARTING, Live
from sonde.analysis.records.locate import is_plain
from sonde.cli.live.liveverdict import VerdictProcess
from sonde.cli.live.supervisor import OUTPUT, SUFFIX, WatchedProgram
from sonde.errors import SondeError
from sonde.guard import guard
from sonde.store.alive import ENDED
from sonde.store.file import RegularFile
from sonde.terminal.line import line
from sonde.views.watch import WatchView, watch

FIRST = 256 * 1024  # bytes of the output that is there already
MOST = 1 << 20  # bytes of new output at one look
LAST_LINES = 20
SHARE = 0.04  # of a core: what looking may cost
LOST = (
    "Sonde's supervisor process was killed. Your program continues and this screen reads its output; its exit "
    "code will be unknown"
)


class Reader:
    """Looks at a run again and again."""

    def __init__(self, run: Path) -> None:
        """Raises RunNotFound if there is no run."""
        self._live = Live(run)
        self._verdict = VerdictProcess(run)
        self._last: WatchView | None = None
        self._due = 0.0

    def look(self) -> WatchView:
        """The run as it is now; of very many processes, as it was a moment ago: looking costs a small share of a core."""
        return self.look_now() if self._last is None or time.monotonic() >= self._due else self._last

    def look_now(self) -> WatchView:
        """The run as it is now, whatever that costs."""
        begun = time.thread_time()
        self._last = self._look()
        self._due = 0.0 if self._live.unread else time.monotonic() + (time.thread_time() - begun) / SHARE
        return self._last

    def _look(self) -> WatchView:
        self._live.look()
        verdict = self._verdict.opinion if self._live.gone else None
        if self._live.trainers and not self._live.gone:
            verdict = self._verdict.look(over=self._live.state not in (RECORDING, STARTING))
        return watch(self._live, verdict, self._verdict.notice)

    def again(self, before: WatchView) -> WatchView:
        """The run as it is now, without a new verdict; the one before counts as long as the state is the same."""
        self._live.look()
        return watch(self._live, before.verdict if before.headline.state == self._live.state else None)

    def close(self) -> None:
        """Ask for no further verdict."""
        self._verdict.close()


class Output:
    """The end of a file that grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._place: int | None = None

    def read(self) -> bytes:
        """What was added since the last time; of too much, the newest."""
        try:
            with RegularFile(self.path) as file:
                size = file.size()
                first = 0 if self._place is None else self._place
                first = max(first, size - (FIRST if self._place is None else MOST))
                content = file.read(size - first, first)
        except OSError:
            return b""
        self._place = first + len(content)
        return content


def output_of(run: Path) -> Output | None:
    """The output of the program, if it was started by `sonde watch`; of several, the newest."""
    found = [path for path in run.glob(f"{OUTPUT}*{SUFFIX}") if is_plain(path)]
    return Output(max(found, key=lambda path: path.stat().st_mtime_ns)) if found else None


def on_screen(run: Path, refresh: float, watched: WatchedProgram | None, pane: str) -> Callable[[], WatchView] | None:
    """Watch until the user leaves; returns what looks once more, as the last view may be old. None: there was no view."""
    from sonde.tui.app import Screen  # only here: lines do without Textual
    from sonde.tui.trim import keep_small

    keep_small()
    output = Output(run / watched.output) if watched is not None and watched.output else output_of(run)
    reader = Reader(run)
    app = Screen(
        lambda: _with_supervisor(reader.look(), watched),
        output.read if output is not None else None,
        refresh=refresh,
        interrupt=(lambda: watched.signal(signal.SIGINT)) if watched is not None else None,
        resized=watched.resize if watched is not None else None,
        pane=pane,
    )
    try:
        app.run(mouse=False)
    finally:
        reader.close()
    if app.return_code:  # Textual has shown the exception
        raise SondeError("the screen failed")
    last = app.view
    return None if last is None else lambda: _with_supervisor(reader.again(last), watched)


def _with_supervisor(view: WatchView, watched: WatchedProgram | None) -> WatchView:
    """Add what the supervisor of a program knows, and the run does not say."""
    if watched is None:
        return view
    if watched.lost:
        view = replace(view, notices=[LOST, *view.notices])
    code = watched.poll()
    if code is not None and view.headline.state == GONE:
        how = f"{CRASHED} (exit code {code})" if code else FINISHED
        view = replace(view, headline=replace(view.headline, state=ENDED, ended=how))
    return view


def last_lines(path: Path) -> str:
    """The end of the output as a terminal would show it, without colours."""
    from sonde.tui.scroll import Scroll

    shown = Scroll()
    shown.feed(Output(path).read())
    return "\n".join(one.plain for one in shown.lines(len(shown) - LAST_LINES, len(shown)))


def in_lines(run: Path, seconds: float, over: Callable[[float], bool]) -> None:
    """Print a line every few seconds until it is over; `over` waits so long, and says whether it is."""
    with closing(Reader(run)) as reader:
        while True:
            view = reader.look()
            _print_line(view)
            if view.headline.state not in (RECORDING, STARTING) or over(seconds):
                return


def beside(run: str, seconds: float) -> Callable[[], None]:
    """Print lines on the error channel while a program runs; call what is returned when it has ended."""
    done = threading.Event()
    reader = Reader(Path(run))

    def print_lines() -> None:
        while not done.wait(seconds):
            with guard("printing lines while the program runs"):
                _print_beside(reader.look())

    thread = threading.Thread(target=print_lines, name="sonde watch", daemon=True)
    thread.start()

    def end() -> None:
        done.set()
        thread.join()
        _print_beside(reader.look_now())
        reader.close()

    return end


def _print_beside(view: WatchView) -> None:
    """On the error channel. If nobody reads it, the program is not to suffer."""
    with suppress(OSError):
        _print_line(view, err=True)


def _print_line(view: WatchView, *, err: bool = False) -> None:
    click.echo(line(view), err=err)
    for notice in view.notices:
        click.echo(f"sonde: {notice}", err=err)
