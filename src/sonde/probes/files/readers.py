"""The readers of files that Python opens: they count what they read and how long it takes.

The file object is the one that Python made. Only its innermost part, the `FileIO`, gets functions of ours in its own namespace, which
call the originals. They hold a weak reference: a file that nothing refers to closes as ever.
"""

from __future__ import annotations

import io
from functools import partial, wraps
from time import monotonic_ns
from typing import TYPE_CHECKING, Any
from weakref import ref

from sonde.guard import guard
from sonde.probes.files.paths import data_path, size_of
from sonde.probes.files.reads import here, process, thread

if TYPE_CHECKING:
    from collections.abc import Callable

DOING = "counting what is read of files"


def opening(original: Callable[..., Any]) -> Callable[..., Any]:
    """What is called in the place of `open`."""

    @wraps(original)
    def open(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        opened = monotonic_ns()
        thread.opening = True
        try:
            made = original(file, mode, *args, **kwargs)
        finally:
            thread.opening = False
        if process.on and type(mode) is str and "r" in mode and "+" not in mode:
            _follow(made, file, monotonic_ns() - opened)
        return made

    return open


@guard(DOING)
def _follow(made: Any, file: Any, ns: int) -> None:
    """Count what is read of this file from now on."""
    path = data_path(file)
    raw = getattr(getattr(made, "buffer", made), "raw", made)
    if path is None or type(raw) is not io.FileIO:
        return
    about = here()
    about.opened(path, size_of(raw.fileno()))
    about.tally(path).ns += ns
    if (
        raw is made
    ):  # without a buffer: `open(path, "rb", 0).read` must keep its file alive, which functions of ours would not
        about.taken(path)
        return
    held: Any = raw  # of its own attributes, type checkers know nothing
    known = ref(raw)
    held.read = partial(_read, io.FileIO.read, known, path)
    held.readall = partial(_read, io.FileIO.readall, known, path)
    held.readinto = partial(_read, io.FileIO.readinto, known, path)
    held.fileno = partial(_fileno, known, path)


def _read(original: Callable[..., Any], raw: Callable[[], Any], path: str, *args: Any) -> Any:
    began = monotonic_ns()
    result = original(raw(), *args)
    _count(path, result, monotonic_ns() - began)
    return result


@guard(DOING)
def _count(path: str, result: Any, ns: int) -> None:
    if process.on and result is not None:
        here().read(path, result if type(result) is int else len(result), ns)


def _fileno(raw: Callable[[], Any], path: str) -> int:
    number: int = io.FileIO.fileno(raw())
    _take(path)
    return number


@guard(DOING)
def _take(path: str) -> None:
    if process.on:
        here().taken(path)
