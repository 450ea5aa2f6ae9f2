"""Which files of the repository differ from the commit: asked of git in a thread of the launcher."""

from __future__ import annotations

import hashlib
import os
import subprocess
import threading

from sonde.events import core
from sonde.guard import guard
from sonde.store.commit import commit_of
from sonde.store.probe import GIT, SETUP
from sonde.store.record import ESSENTIAL

SECONDS = 10.0
MOST_FILES = 100
MOST_BYTES = 64_000_000  # of a difference; a larger one has no digest
STATUS = ("git", "--no-optional-locks", "status", "--porcelain", "-z", "--untracked-files=no")
DIFF = ("git", "--no-optional-locks", "diff", "HEAD", "--no-ext-diff", "--no-color", "--no-textconv")


def note_changes() -> None:
    """Write down the changed files, in a thread of its own, if the working folder is in a repository."""
    if commit_of(os.getcwd()) is not None:
        threading.Thread(target=_note, name="sonde git", daemon=True).start()


@guard("asking git for changed files")
def _note() -> None:
    status = _answer(STATUS)
    if status is None:
        return
    fields = status.split(b"\0")
    names = [field[3:].decode("utf-8", "replace") for field in fields if len(field) > 3 and field[2:3] == b" "]
    changes = _answer(DIFF) if names else b""
    digest = hashlib.sha256(changes).hexdigest()[:16] if changes else None
    core.mark(GIT, SETUP, None, {"dirty": names[:MOST_FILES], "count": len(names), "diff": digest}, ESSENTIAL)


def _answer(command: tuple[str, ...]) -> bytes | None:
    """What git prints; None if it is not there, takes too long or fails."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False)  # noqa: S603  our own words
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 and len(done.stdout) <= MOST_BYTES else None
