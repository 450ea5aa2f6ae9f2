"""Lets the ranks of one job agree on a run folder, with nothing between them but the folder they all write to.

The ranks look at the claims `.claim-<job>-0`, `-1`, ... in order. The first claim that a rank can create is its own:
the folder it made is the run of the job. A claim whose folder is gone, or in which the same rank is at home already (an
earlier attempt under the same job id), is passed over. Claims are never removed or replaced, so nobody can lose one.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from sonde.errors import FolderRefused
from sonde.store.folder import MAX_TRIES, create_file, discard_run, ensure_folder, join_run, opened, slug

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_CONTENT = 512
PATIENCE = 2.0  # seconds to wait for a claim that is created and not yet written (file systems without hard links)


def agree(parent: str, job: str, rank: int, create: Callable[[], str]) -> str:
    """The run folder of a job: an existing one, or the one that `create` makes, if this rank comes first."""
    ensure_folder(parent)
    # The folder may be a link, or shared with others: a user's own choice. What lies in it is checked.
    folder = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _agree(folder, parent, _stem(job), rank, create)
    finally:
        os.close(folder)


def _agree(folder: int, parent: str, stem: str, rank: int, create: Callable[[], str]) -> str:
    own = ""
    try:
        for number in range(MAX_TRIES):
            claim = f"{stem}-{number}"
            run = _read(folder, claim)
            if run is None:
                own = own or create()
                _create(folder, claim, os.path.basename(own))
                run = _read(folder, claim)
            if run and _enter(os.path.join(parent, run), rank):
                return os.path.join(parent, run)
        raise FolderRefused(f"{parent} holds {MAX_TRIES} claims of one job. Delete the files {stem}-* in it.")
    finally:
        if own and not _is_entered(own, rank):
            discard_run(own)


def _stem(job: str) -> str:
    import hashlib  # several ms, and needed by ranks only

    return f".claim-{slug(job)}-{hashlib.sha256(job.encode('utf-8', 'replace')).hexdigest()[:16]}"


def _read(folder: int, claim: str) -> str | None:
    """The name of the run folder in a claim; None: there is no such claim; empty: it is of no use."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            fd = os.open(claim, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
        except FileNotFoundError:
            return None
        except OSError:  # a symbolic link, or not readable for us
            return ""
        try:
            facts = os.fstat(fd)
            content = os.read(fd, MAX_CONTENT)
        except OSError:
            return ""
        finally:
            os.close(fd)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid():
            return ""
        if content.endswith(b"\n") or time.monotonic() > deadline:
            return _name_in(content)
        time.sleep(0.02)


def _name_in(content: bytes) -> str:
    name = content.decode("ascii", "replace")
    complete = name.endswith("\n") and name[:-1] == os.path.basename(name[:-1])
    return name[:-1] if complete and not name.startswith(".") else ""


def _create(folder: int, claim: str, run: str) -> None:
    """Create a claim that is complete as soon as it can be seen. If another rank was faster, nothing happens."""
    temporary = f"{claim}-{os.getpid()}-{os.urandom(4).hex()}"
    create_file(folder, temporary, f"{run}\n".encode())
    try:
        os.link(temporary, claim, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        pass
    except OSError:  # no hard links here: create it in place, and readers wait for the end of the line
        with suppress(FolderRefused):
            create_file(folder, claim, f"{run}\n".encode())
    finally:
        os.unlink(temporary, dir_fd=folder)


def _enter(run: str, rank: int) -> bool:
    """Note in a run that this rank takes part; False if it does so already, or if the run cannot be used."""
    try:
        join_run(run)
        with opened(run) as folder:
            create_file(folder, _mark(rank), b"")
    except (FileNotFoundError, FolderRefused):
        return False
    return True


def _is_entered(run: str, rank: int) -> bool:
    return os.path.lexists(os.path.join(run, _mark(rank)))


def _mark(rank: int) -> str:
    return f".rank-{rank}"
