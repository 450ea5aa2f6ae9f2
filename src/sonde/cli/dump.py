"""`sonde dump`: ask a running program to write its black box now."""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import suppress
from pathlib import Path

import click

from sonde import units
from sonde.analysis.live.stacks import ask, named
from sonde.blackbox.box import REQUEST
from sonde.blackbox.dump import FOLDER
from sonde.cli.options.choose import choose, directory, one_run, runs_dir, waiting
from sonde.errors import SondeError
from sonde.store.alive import UNKNOWN, resolve_replaced, running, state_of
from sonde.store.file import read_small
from sonde.store.folder import FILE_MODE, PROCESS_FILE
from sonde.store.process import Info, read_info

WAIT_SECONDS = 10.0
LOOK_SECONDS = 0.05
MOST_BYTES = 1 << 20  # of a process.json
PASSIVE = ("worker", "launcher")  # they have no black box
_ANSWER = re.compile(r"\d{3,9}-demand-(.+)-(\d{1,18})")


@click.command(
    epilog="""\b
Example: sonde dump                              the newest run
Example: sonde dump train-3f2a --wait 60"""
)
@one_run
@directory
@waiting(WAIT_SECONDS, "How long to wait for a response.")
@click.pass_context
def command(context: click.Context, run: str | None, dir: str | None, wait: float) -> None:
    """Ask a running program to write its last batches now.

    Works for programs started with `sonde run --blackbox` or that call `sonde.flow.blackbox()`. Each training process
    writes a folder to RUN/blackbox at its next batch or at the end of its step. If a process does not respond, its
    stacks are saved. `touch RUN/dump` does the same without waiting.
    """
    path = choose(run, runs_dir(dir), remote=False)
    asked = _asked(path)
    before = set(_folders(path))
    mark = _ask(path)
    try:
        answers = _wait(path, asked, before, wait)
    finally:
        _take_back(path, mark)
    silent = [one for one in asked if (one.host, one.pid) not in answers]
    for one in asked:
        if one not in silent:
            click.echo(f"{named(one)}: {path / FOLDER / answers[one.host, one.pid]}")
    for one in silent:
        stacks = ask(path, one.host, one.pid)
        where = f"Its stacks: {stacks.file}" if stacks.problem is None else f"No stacks: {stacks.problem}."
        click.echo(f"{named(one)}: no response within {units.duration(int(wait * 1e9))}. {where}", err=True)
    if answers:
        click.echo(f"Show it: sonde blackbox {path.name}")
    context.exit(1 if silent else 0)


def _asked(path: Path) -> list[Info]:
    """The processes of the run that can answer. Raises SondeError if there is none."""
    running = _processes(path)
    found = [(one, _has_box(folder)) for folder, one in running if one.role not in PASSIVE]
    if running and not found:
        raise SondeError(
            f"{path.name} has no training process right now: it is starting or ending. Try again in a moment."
        )
    if not found:
        raise SondeError(f"{path.name} has ended. Show what it wrote: sonde blackbox {path.name}")
    asked = [one for one, has in found if has and one.pid is not None]
    if not asked:
        raise SondeError(
            f"The black box of {path.name} is off, so there are no batches to write. Start the program with sonde "
            "run --blackbox, or call sonde.flow.blackbox() in it."
        )
    return asked


def _processes(path: Path) -> list[tuple[Path, Info]]:
    found: dict[Path, Info] = {}
    for file in sorted(path.glob(f"*/{PROCESS_FILE}")):
        with suppress(SondeError, OSError):
            found[file.parent] = read_info(file.parent, [])
    known = zip(found, resolve_replaced(list(found.values())), strict=True)
    return [(folder, info) for folder, info in known if running(info) is not None or state_of(info) == UNKNOWN]


def _has_box(folder: Path) -> bool:
    try:
        return bool(json.loads(read_small(folder / PROCESS_FILE, MOST_BYTES)).get("blackbox"))
    except (OSError, ValueError, AttributeError, RecursionError):
        return False


def _folders(path: Path) -> list[str]:
    try:
        return sorted(os.listdir(path / FOLDER))
    except OSError:
        return []


def _ask(path: Path) -> tuple[int, int]:
    """Put the request there, or renew one that somebody has left; how to know it again."""
    fd = os.open(path / REQUEST, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, FILE_MODE)
    try:
        os.utime(fd)
        found = os.fstat(fd)
    finally:
        os.close(fd)
    return found.st_dev, found.st_ino


def _take_back(path: Path, mark: tuple[int, int]) -> None:
    with suppress(OSError):
        found = os.lstat(path / REQUEST)
        if (found.st_dev, found.st_ino) == mark:
            os.unlink(path / REQUEST)


def _wait(path: Path, asked: list[Info], before: set[str], seconds: float) -> dict[tuple[str, int | None], str]:
    """Who has answered, by host and pid, and with which folder."""
    until = time.monotonic() + seconds
    while True:
        new = map(_ANSWER.fullmatch, set(_folders(path)) - before)
        answers: dict[tuple[str, int | None], str] = {(found[1], int(found[2])): found[0] for found in new if found}
        if all((one.host, one.pid) in answers for one in asked) or time.monotonic() > until:
            return answers
        time.sleep(LOOK_SECONDS)
