"""Lets the ranks of one job agree on a run folder, with nothing between them but the folder they all write to.

The ranks look at the claims `.claim-<job>-0`, `-1`, ... in order. The first claim that a rank can create is its own:
the folder it made is the run of the job. A claim whose folder is gone, or in which the same rank of the same attempt is at home already
(another job under the same id), is passed over. Claims are never removed or replaced, so nobody can lose one.

Launchers do the same, one for each task or node. Where people choose the id of a job, and may choose it again, they also pass over a run
all of whose launchers have ended.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from sonde.errors import FolderRefused
from sonde.store.folder import MAX_TRIES, create_file, discard_run, ensure_folder, join_run, opened, slug
from sonde.store.process import read_info

MAX_CONTENT = 512
PATIENCE = 2.0  # seconds to wait for a claim that is created and not yet written (file systems without hard links)


class Member(NamedTuple):
    """Who takes part in a run: a rank, or a launcher; and in which attempt of the job. `reused`: a later job may have the same key."""

    name: str
    attempt: int = 0
    reused: bool = False

    @property
    def mark(self) -> str:
        """The file that says so in the run folder."""
        return f".{self.name}-{self.attempt}" if self.attempt else f".{self.name}"


def agree(parent: str, job: str, member: Member, create: Callable[[], str], series: str | None = None) -> str:
    """The run folder of a job: an existing one, or the one that `create` makes, if this member comes first.

    `series`: what all attempts of the job share, if `job` differs between them. A later attempt joins the newest run of it.
    """
    ensure_folder(parent)
    # The folder may be a link, or shared with others: a user's own choice. What lies in it is checked.
    folder = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        earlier = _newest(folder, _stem(series)) if series and member.attempt else None
        run, made = _agree(folder, parent, _stem(job), member, create, earlier)
        if made and series:
            _register(folder, _stem(series), os.path.basename(run))
    finally:
        os.close(folder)
    return run


def _agree(
    folder: int, parent: str, stem: str, member: Member, create: Callable[[], str], earlier: str | None
) -> tuple[str, bool]:
    """The run folder, and whether it was made here. `earlier`: the run of an earlier attempt."""
    own = ""
    try:
        for number in range(MAX_TRIES):
            claim = f"{stem}-{number}"
            run = _read(folder, claim)
            if run is None:
                own = own or ("" if earlier else create())
                _create(folder, claim, earlier or os.path.basename(own))
                run, earlier = _read(folder, claim), None
            if run and _enter(os.path.join(parent, run), member):
                return os.path.join(parent, run), run == os.path.basename(own)
        raise FolderRefused(f"{parent} holds {MAX_TRIES} claims of one job. Delete the files {stem}-* in it.")
    finally:
        if own and not _is_entered(own, member):
            discard_run(own)


def _newest(folder: int, stem: str) -> str | None:
    """The run in the last claim; None if there is none."""
    found = None
    for number in range(MAX_TRIES):
        run = _read(folder, f"{stem}-{number}")
        if run is None:
            break
        found = run or found
    return found


def _register(folder: int, stem: str, run: str) -> None:
    """Add a claim behind the others."""
    for number in range(MAX_TRIES):
        _create(folder, f"{stem}-{number}", run)
        if _read(folder, f"{stem}-{number}") == run:
            return


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


def _enter(run: str, member: Member) -> bool:
    """Note in a run that this member takes part; False if it does so already, or if the run cannot be used."""
    try:
        join_run(run)
        if member.reused and _is_over(run):
            return False
        with opened(run) as folder:
            create_file(folder, member.mark, b"")
    except (FileNotFoundError, FolderRefused):
        return False
    return True


def _is_over(run: str) -> bool:
    """Whether launchers have recorded into a run, and all of them have ended: then it is that of another job with the same id."""
    from pathlib import Path  # launchers only

    infos = [read_info(Path(one.path), []) for one in os.scandir(run) if one.is_dir(follow_symlinks=False)]
    ends = [info.end is not None for info in infos if info.program is not None]
    return bool(ends) and all(ends)


def _is_entered(run: str, member: Member) -> bool:
    return os.path.lexists(os.path.join(run, member.mark))
