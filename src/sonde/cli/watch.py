"""`sonde watch`: start a program and watch it, or watch a running or finished run."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sonde import environment, launch
from sonde.cli.live.supervisor import WatchedProgram, keep
from sonde.cli.options.program import ENDED, Program, program_options, refuse_unknown
from sonde.cli.run import print_note
from sonde.errors import CommandRefused, RunNotFound, SettingError, SondeError
from sonde.guard import guard
from sonde.store.folder import RUN_FILE

if TYPE_CHECKING:
    from sonde.analysis.ui import RunPage

SCRIPTS = (".py", ".pyw", ".pyc", ".pyz", ".sh")
PLAIN_SECONDS = 5.0
INTERRUPTED = 128 + signal.SIGINT
UNKNOWN = 1  # for a program of which nobody knows whether it ended well
FAILED = object()  # what there is instead of a screen


def options(command: Any) -> Any:
    """The options of `sonde watch` and `sonde deep`."""
    command = click.option("--web", is_flag=True, help="Show the run in a browser instead of in the terminal.")(command)
    command = click.option("--plain", is_flag=True, help="Print lines instead of showing the screen.")(command)
    command = click.option(
        "--refresh",
        type=click.FloatRange(min=0.2, max=3600),
        metavar="SECONDS",
        help="Refresh interval (default 1 s; 5 s with --plain).",
    )(command)
    words = click.argument("words", nargs=-1, metavar="[RUN | PROGRAM [ARGUMENT]...]", type=click.UNPROCESSED)
    return words(program_options(command))


class WatchCommand(Program):
    """Takes its options behind a run too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """If the first word is no program, and the others are options of ours, they were meant for us."""
        given = list(args)
        left = super().parse_args(ctx, args)
        word, *others = ctx.params["words"] or ("",)
        if not others or ctx.meta[ENDED] or not others[0].startswith("-") or _is_program(word):
            return left
        ctx.params.clear()
        left = super().parse_args(ctx, [*given[: len(given) - len(others) - 1], *others, word])
        if ctx.params["words"] == (word,):
            return left
        ctx.params.clear()
        return super().parse_args(ctx, given)


@click.command(
    cls=WatchCommand,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="""\b
Example: sonde watch train.py --epochs 3
Example: sonde watch torchrun --nproc-per-node 2 train.py
Example: sonde watch --web train.py              in a browser
Example: sonde watch                             the newest run
Example: sonde watch train-3f2a                  from any other terminal""",
)
@options
@click.option("--deep", is_flag=True, default=None, help="Also record and show each layer of the model.")
@click.pass_context
def command(
    context: click.Context,
    /,
    words: tuple[str, ...],
    refresh: float | None,
    plain: bool,
    web: bool,
    deep: bool | None,
    **given: Any,
) -> None:
    """Start a program and watch it, or watch a running or finished run.

    PROGRAM is started as with `sonde run`; its output is part of the screen. RUN is a path, a run folder's name or any
    unique part of it. Default: the newest run.

    `q` closes the screen and the program continues. Ctrl-C interrupts a program that was started here.
    """
    refuse_unknown(context, words)
    context.exit(follow(words, launch.Options(**given, deep=deep), refresh, plain, web=web))


def follow(
    words: tuple[str, ...], options: launch.Options, refresh: float | None, plain: bool, *, web: bool = False
) -> int:
    """Watch what is meant; the exit code."""
    if web and plain:
        raise click.UsageError("Choose one of --web and --plain.")
    plain = plain or not _terminal()
    run = _run_meant(words, options)
    try:
        if web:
            return _start_with_page(words, options) if run is None else _serve(run)
        if run is not None:
            return _attach(run, refresh, plain, _pane(options))
        return _start(words, options, refresh, plain)
    except CommandRefused as error:
        print_note(str(error))
        return error.exit_code
    except SettingError as error:
        raise click.UsageError(str(error)) from None


def _terminal() -> bool:
    """Is there a person at a terminal that can draw?"""
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)) and not environment.dumb_terminal()


def _pane(options: launch.Options) -> str:
    """The part of the screen that is shown first, where not everything has room."""
    return "layers" if options.deep else ""


def _run_meant(words: tuple[str, ...], options: launch.Options) -> Path | None:
    """The run that is meant, or None if the words are a program."""
    if not words:
        return _chosen(None, options)
    word = words[0]
    if _is_path(word):
        if len(words) > 1:
            known = {name for one in click.get_current_context().command.params for name in one.opts}
            wrong = next((one for one in words[1:] if one.partition("=")[0] not in known), words[1])
            raise click.UsageError(f"{word} is a run, so {wrong} does not apply.")
        return Path(word)
    if len(words) > 1 or word.startswith("-") or word.endswith(SCRIPTS) or Path(word).exists():
        return None
    try:
        return _chosen(word, options)
    except RunNotFound:
        if shutil.which(word) is not None:
            return None
        raise


def _is_path(word: str) -> bool:
    """Is it the folder of a run?"""
    return (Path(word) / RUN_FILE).exists()


def _is_program(word: str) -> bool:
    """Is it something that can be started, or looks like it?"""
    if _is_path(word):
        return False
    return word.startswith("-") or word.endswith(SCRIPTS) or Path(word).exists() or shutil.which(word) is not None


def _chosen(word: str | None, options: launch.Options) -> Path:
    """The run of that name, or the newest. Loads what reads runs, which the supervisor of a program does without."""
    from sonde.cli.options.choose import choose, runs_dir

    start = f"Start a program and watch it: sonde {'deep' if options.deep else 'watch'} train.py"
    return choose(word, runs_dir(options.dir), start)


# ── a run ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _attach(run: Path, refresh: float | None, plain: bool, pane: str) -> int:
    from sonde.cli.live import screen

    if not plain:
        screen.on_screen(run, refresh or 1.0, None, pane)
        return 0
    try:
        screen.in_lines(run, refresh or PLAIN_SECONDS, _wait)
    except KeyboardInterrupt:  # only the watching ends
        return INTERRUPTED
    return 0


def _wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False


# ── a program ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _start(words: tuple[str, ...], options: launch.Options, refresh: float | None, plain: bool) -> int:
    line = launch.command_of(words)
    if not launch.wanted(options):
        sys.stdout.flush()
        launch.replace(line)
    if plain:
        return _beside(line, options, refresh or PLAIN_SECONDS)
    columns, rows = shutil.get_terminal_size()
    watched = keep(line, options, columns - 2, rows)
    for notice in watched.notices:
        print_note(notice)
    if watched.run is None:
        return _let_it_run(watched)
    look: Any = FAILED
    with guard("showing the screen"):
        from sonde.cli.live import screen  # loads what the supervisor does without

        look = screen.on_screen(Path(watched.run), refresh or 1.0, watched, _pane(options))
    if look is not FAILED:
        return _leave(watched, look, screen)
    print_note(
        f"the program continues without a screen (pid {watched.program}). {_further(watched, 'Next: sonde report')}"
    )
    return _let_it_run(watched)


def _beside(line: list[str], options: launch.Options, seconds: float) -> int:
    """The program has the terminal, or the pipe, and lines come on the error channel."""
    with launch.blocked() as before:
        launched = launch.start(line, options, mask=before)
        for notice in launched.notices:
            print_note(notice)
        if launched.run is None:
            return launch.attend(launched)
        end = _print_lines(launched.run, seconds)
        code = launch.attend(launched)
        with guard("printing lines while the program runs"):
            end()
    return code


def _serve(run: Path) -> int:
    from sonde.cli.ui import meant, serve

    serve(*meant(str(run)))
    return 0


def _start_with_page(words: tuple[str, ...], options: launch.Options) -> int:
    """The program has the terminal, and a server of its own shows the run until it ends, then until Ctrl-C."""
    line = launch.command_of(words)
    if not launch.wanted(options):
        sys.stdout.flush()
        launch.replace(line)
    page = None
    with launch.blocked() as before:
        launched = launch.start(line, options, mask=before)
        for notice in launched.notices:
            print_note(notice)
        if launched.run is not None:
            page = _open_page(launched.run)
        code = launch.attend(launched)
    if page is not None:
        print_note(
            f"the program ended with exit code {code}. {'Ctrl-C ends the page.' if _terminal() else ''}".rstrip()
        )
        with suppress(KeyboardInterrupt):
            if _terminal():
                signal.pause()
        page.close()
    return code


@guard("showing the run in a browser", default=None)
def _open_page(run: str) -> RunPage | None:
    """The server, and a tab of the browser. Without the extra `ui` the program runs on all the same."""
    from sonde.analysis.ui import RunPage

    try:
        page = RunPage(Path(run))
    except SondeError as error:
        print_note(str(error))
        return None
    print_note(f"the run is at {page.address}")
    if not environment.over_ssh():
        webbrowser.open(page.address)
    return page


@guard("printing lines while the program runs", default=lambda: None)
def _print_lines(run: str, seconds: float) -> Callable[[], None]:
    from sonde.cli.live.screen import beside

    return beside(run, seconds)


def _let_it_run(watched: WatchedProgram) -> int:
    """Wait for the end of a program that there is no screen for; Ctrl-C interrupts it."""
    while True:
        try:
            code = watched.wait()
        except KeyboardInterrupt:
            watched.signal(signal.SIGINT)
        else:
            return _print_lost(watched) if code is None else code


def _leave(watched: WatchedProgram, look: Any, attach: Any) -> int:
    """Say how it stands, on the terminal that is the user's again."""
    code = watched.poll()
    view = None
    with guard("reading the run one last time"):  # after `poll`: of a program that has ended, the end
        view = None if look is None else look()
    if code is None and view is not None and view.headline.state in ("ended", "died"):
        code = watched.wait()
    if code is None and not watched.lost:
        print_note(f"the program continues (pid {watched.program}). {_further(watched, 'Watch it again: sonde watch')}")
        return 0
    if watched.lost and watched.runs():
        print_note(
            f"Sonde's supervisor process was killed. Your program continues (pid {watched.program}); this command reads its "
            "output until it ends."
        )
        return _let_it_run(watched)
    if code and watched.output:
        click.echo(attach.last_lines(Path(watched.run or "") / watched.output))
    if view is not None:
        click.echo(attach.line(view))
    if code is None:
        return _print_lost(watched)
    print_note(f"the program ended with exit code {code}. {_further(watched, 'Next: sonde report')}")
    return code


def _print_lost(watched: WatchedProgram) -> int:
    """The supervisor was killed, and with it the exit code is lost."""
    further = _further(watched, "Next: sonde report")
    print_note(f"the program's exit code is unknown, because Sonde's supervisor process was killed. {further}")
    return UNKNOWN


def _further(watched: WatchedProgram, line: str) -> str:
    """What can be done next."""
    if watched.run is None:
        return "Nothing was recorded."
    return f"{line} {os.path.basename(watched.run)}" if os.path.isdir(watched.run) else "Its run folder was deleted."
