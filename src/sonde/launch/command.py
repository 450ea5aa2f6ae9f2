"""The program to run: the arguments of `sonde run` as a command, and the name of the run."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from typing import NamedTuple

from sonde.errors import CommandRefused

SCRIPT = (".py", ".pyw", ".pyc", ".pyz")
MISSING, REFUSED = 127, 126  # what a shell answers to a program that is not there, or cannot be started
NO_SCRIPT = 2  # what Python answers to a script that is not there


class Options(NamedTuple):
    """What `sonde run` is told besides the program; None is not told."""

    name: str | None = None
    dir: str | None = None
    steps: str | None = None
    every: int | None = None
    ranks: str | None = None
    deep: bool | None = None
    mode: str | None = None
    blackbox: int | None = None
    watch_nonfinite: str | None = None
    fingerprint: int | None = None
    learning: int | None = None
    io: bool | None = None
    profile_step: str | None = None
    sample: int | None = None


def command_of(words: Sequence[str]) -> list[str]:
    """The command: a script, `-m module` and `-c code` are run by this Python, everything else as it stands.

    Raises CommandRefused if there is no such thing.
    """
    if not words or not words[0]:
        raise CommandRefused("Nothing to run. Give a script or a command: sonde run train.py", NO_SCRIPT)
    first = words[0]
    if first in ("-m", "-c"):
        if len(words) == 1:
            example = {"-m": "package.train", "-c": "'print(1)'"}[first]
            raise CommandRefused(f"Something is missing after {first}: sonde run {first} {example}", NO_SCRIPT)
        return [sys.executable, *words]
    if _is_script(first):
        return [sys.executable, *_checked(words)]
    if shutil.which(first) is None:
        raise _refused(first)
    return list(words)


def name_of(command: Sequence[str]) -> str:
    """What the run is called: the script or module in the command, else the program."""
    words = list(command[1:])
    for place, word in enumerate(words):
        if word.endswith(SCRIPT):
            return _stem(word)
        if word == "-m" and place + 1 < len(words) and words[place + 1] not in _LAUNCHERS:
            return words[place + 1]
    return _stem(command[0]) or "program"


_LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path.rstrip("/")))[0]


def _is_script(word: str) -> bool:
    """Is this something that Python runs: a file with its ending, or a folder?"""
    return word.endswith(SCRIPT) or os.path.isdir(word)


def _checked(words: Sequence[str]) -> Sequence[str]:
    script = words[0]
    if os.path.isdir(script) and not os.path.isfile(os.path.join(script, "__main__.py")):
        raise CommandRefused(f"{script} is a folder without a __main__.py. Give a script in it.", NO_SCRIPT)
    if not os.path.exists(script):
        raise CommandRefused(f"No such script: {script}.{_hint(script)}", NO_SCRIPT)
    return [os.path.join(".", script), *words[1:]] if script.startswith("-") else words  # no option of Python


def _refused(word: str) -> CommandRefused:
    if os.path.isfile(word):
        shell = "bash" if word.endswith(".sh") else "python"
        return CommandRefused(f"{word} is not executable. Name its interpreter: sonde run {shell} {word}", REFUSED)
    if os.path.isfile(word + ".py"):
        return CommandRefused(f"Command not found: {word}. Did you mean the script {word}.py?", MISSING)
    return CommandRefused(f"Command not found: {word}. There is no such script either.{_hint(word)}", MISSING)


def _hint(word: str) -> str:
    """The script that was probably meant."""
    import difflib

    folder = os.path.dirname(word) or "."
    try:
        scripts = [name for name in os.listdir(folder)[:1000] if name.endswith(".py")]
    except OSError:
        return f" The folder {folder} does not exist or cannot be read."
    close = difflib.get_close_matches(os.path.basename(word), scripts, n=1)
    return f" Did you mean {os.path.join(os.path.dirname(word), close[0])}?" if close else ""
