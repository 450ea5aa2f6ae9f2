"""The progress bar of a long command, on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from sonde.cli.output.console import stderr


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A function that takes (done, total); draws a bar if standard error is a terminal, and nothing otherwise."""
    console = stderr()
    if not console.is_terminal:
        yield lambda done, total: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
