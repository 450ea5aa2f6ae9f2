"""What cannot be seen, and why: Pythons that ignore the environment, or got a cleaned one."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence

from sonde.store.folder import host
from sonde.store.usage import homeless

VALUED = "WX"  # options of Python with a value, which may be the next word
LAST = "cm"  # options after which everything belongs to the program
MOST_NAMED = 5
_NOTHING = "The program itself was not recorded"


def is_python(program: str) -> bool:
    """Is this the name of a Python interpreter?"""
    return os.path.basename(program).lower().startswith(("python", "pypy"))


def ignored(command: Sequence[str]) -> str | None:
    """Why Python will ignore the bootstrap in this command; None if it will not, or is no Python."""
    if not command or not is_python(command[0]):
        return None
    option = _deaf_option(command[1:])
    if option is None:
        return None
    if option == "S":
        return "python -S skips the site module, which starts Sonde"
    return f"python -{option} ignores the environment variables that start Sonde"


def _deaf_option(words: Sequence[str]) -> str | None:
    skip = False
    for word in words:
        if skip:
            skip = False
            continue
        if not word.startswith("-") or word == "-":
            return None  # the script
        if word.startswith("--"):
            skip = word == "--check-hash-based-pycs"
            continue
        for place, letter in enumerate(word[1:], 1):
            if letter in "IES":
                return letter
            if letter in LAST:
                return None
            if letter in VALUED:
                skip = place == len(word) - 1
                break
    return None


def cleaned(pid: int, run: str) -> str | None:
    """Why a running Python does not know of the run; None if it does, or nobody can tell."""
    try:
        environment = _given(pid)
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            ended = not file.read()  # the kernel shows nothing of a process that has ended
    except OSError:
        return None
    if f"SONDE_RUN={run}".encode(errors="surrogateescape") in environment.split(b"\0"):
        return None
    if ended or environment.startswith(b"\0"):  # some write their own title over it
        return None
    return "it was started with its own environment, without Sonde's variables"


def path_of(pid: int) -> str | None:
    """Where a process looks for programs; None if it was not told. Raises OSError if it is gone."""
    words = (one for one in _given(pid).split(b"\0") if one.startswith(b"PATH="))
    found = next(words, None)
    return None if found is None else os.fsdecode(found[len(b"PATH=") :])


def _given(pid: int) -> bytes:
    """The variables that a process was started with."""
    with open(f"/proc/{pid}/environ", "rb") as file:
        return file.read()


def interpreter(named: str, program: str, folder: str, path: str | None) -> str:
    """By which path a Python was started, as `named` in that folder; `program`, its file, if that cannot be determined.

    All venvs of one Python are links to the same file.
    """
    found = os.path.join(folder, named) if os.sep in named else shutil.which(named, path=path)
    return found if found and os.path.realpath(found) == os.path.realpath(program) else program


def without_folder(run: str) -> list[str]:
    """A notice if processes of the run could not create their folders."""
    lost = homeless(run)
    where = f"their processes could not create a folder in {run}. Check the free space and permissions there"
    return [f"{lost:,} records were lost: {where}."] if lost else []


def nothing(run: str, pythons: Iterable[str], *, reported: bool = False) -> list[str]:
    """A notice if no process but the launcher has recorded anything. `told`: it was told already which one could not be seen, and why."""
    own = f"{host()}-{os.getpid()}-"
    folders = [entry.name for entry in os.scandir(run) if entry.is_dir() and not entry.name.startswith(own)]
    if any(name.rpartition("-")[0].rpartition("-")[2].isdigit() for name in folders):
        return []
    if reported:
        return [f"{_NOTHING}."]
    here = _environment(sys.executable)
    others = sorted({os.path.abspath(path) for path in pythons if _environment(path) != here})[:MOST_NAMED]
    if others:
        ran = f"It ran with {', '.join(others)}, but Sonde is installed for {sys.executable}"
        return [f"{_NOTHING}. {ran}. Install Sonde there, or start the program with this Python."]
    return [f"{_NOTHING}: no Python process that Sonde could record trained with torch or used sonde."]


def _environment(python: str) -> str:
    """Where a Python has its packages from: its venv, or else itself."""
    folder = os.path.realpath(os.path.dirname(os.path.abspath(python)))
    places = (folder, os.path.dirname(folder))
    venv = next((place for place in places if os.path.isfile(os.path.join(place, "pyvenv.cfg"))), None)
    return venv or os.path.realpath(python)
