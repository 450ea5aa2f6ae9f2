"""Describes the exception that ends a process: its type, its message, and the line of the program that raised it."""

from __future__ import annotations

import os
import sys

LONGEST = 300  # characters of a message
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_PYTHON = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_PACKAGES = ("site-packages", "dist-packages")


def describe(error: BaseException, *, message: bool) -> dict[str, str | None]:
    """The fields `exception`, `message` and `place` of an end. Without `message` nothing of the program's values is kept."""
    text = str(error)
    lines = text.strip().splitlines()
    # A loader passes on the traceback of its worker as text.
    passed = [line.strip() for line in lines if line.lstrip().startswith('File "')]
    first = (lines[-1] if passed else lines[0])[:LONGEST] if lines else None
    place = _last([_named(line) for line in passed]) or _last(_frames(error))
    return {"exception": type(error).__name__, "message": first if message else None, "place": place}


def _frames(error: BaseException) -> list[tuple[str, str]]:
    found, trace = [], error.__traceback__
    while trace is not None:
        found.append((trace.tb_frame.f_code.co_filename, str(trace.tb_lineno)))
        trace = trace.tb_next
    return found


def _named(line: str) -> tuple[str, str]:
    """The file and the line that `File "train.py", line 12, in main` names."""
    file, _, rest = line.removeprefix('File "').partition('", line ')
    return file, rest.partition(",")[0]


def _last(frames: list[tuple[str, str]]) -> str | None:
    """`train.py:12`: the innermost frame of the program itself; of libraries alone, the innermost one."""
    own = [(file, line) for file, line in frames if not _library(file)] or frames
    if not own:
        return None
    file, line = own[-1]
    here = os.path.dirname(os.path.abspath(sys.argv[0])) if getattr(sys, "argv", [""])[0] else os.getcwd()
    return f"{file.removeprefix(here + os.sep)}:{line}"


def _library(file: str) -> bool:
    return file.startswith((_OURS, _PYTHON, "<")) or any(part in _PACKAGES for part in file.split(os.sep))
