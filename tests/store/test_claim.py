"""Ranks agree on one run folder."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from sonde.errors import FolderRefused
from sonde.store import claim, folder

if TYPE_CHECKING:
    from pathlib import Path


def join(parent: Path, rank: int, job: str = "job 7/0") -> str:
    member = claim.Member(f"rank-{rank}")
    return claim.agree(str(parent), job, member, lambda: folder.create_run(str(parent), "try", {}, "0.1.0"))


def runs(parent: Path) -> list[str]:
    return sorted(name for name in os.listdir(parent) if not name.startswith("."))


def test_ranks_that_start_together_share_one_folder(tmp_path: Path) -> None:
    """Sixteen ranks that start at the same time end up in one folder, and leave no other."""
    gate, opener = os.pipe()
    children = []
    for rank in range(16):
        pid = os.fork()
        if pid == 0:
            os.close(opener)
            os.read(gate, 1)  # returns at the end of the file, for all at once
            os._exit(0 if join(tmp_path, rank) else 1)
        children.append(pid)
    os.close(opener)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    os.close(gate)
    assert codes == [0] * 16
    (run,) = runs(tmp_path)
    assert len([name for name in os.listdir(tmp_path / run) if name.startswith(".rank-")]) == 16


def test_other_jobs_get_other_folders(tmp_path: Path) -> None:
    """Two job ids never share a folder."""
    assert join(tmp_path, 0, "a") != join(tmp_path, 0, "b")


def test_the_same_rank_once_more_is_a_new_attempt(tmp_path: Path) -> None:
    """A job id that is used again begins a new run, and the other ranks follow."""
    first = [join(tmp_path, rank) for rank in (0, 1)]
    second = [join(tmp_path, rank) for rank in (0, 1)]
    assert len(set(first)) == len(set(second)) == 1
    assert first[0] != second[0]


def test_a_claim_whose_folder_is_gone_is_passed_over(tmp_path: Path) -> None:
    """After the run was removed, the job makes a new one, and all ranks find it."""
    shutil.rmtree(join(tmp_path, 0))
    assert join(tmp_path, 0) == join(tmp_path, 1)
    assert len(runs(tmp_path)) == 1


@pytest.mark.parametrize("content", [b"", b"../..\n", b"/etc\n", b".\n", b"\xff\xfe\n", b"no end", b"x" * 5000])
def test_a_claim_that_says_nothing_useful_is_passed_over(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Garbage in a claim leads nowhere, least of all out of the folder."""
    monkeypatch.setattr(claim, "PATIENCE", 0.0)
    join(tmp_path, 0)
    (first,) = [name for name in os.listdir(tmp_path) if name.startswith(".claim")]
    (tmp_path / first).write_bytes(content)
    assert os.path.dirname(join(tmp_path, 1)) == str(tmp_path)


def test_a_link_in_place_of_a_claim_is_passed_over(tmp_path: Path) -> None:
    """A claim that is a symbolic link is not read."""
    run = join(tmp_path, 0)
    (first,) = [name for name in os.listdir(tmp_path) if name.startswith(".claim")]
    os.rename(tmp_path / first, tmp_path / "moved")
    (tmp_path / first).symlink_to("moved")
    assert join(tmp_path, 1) != run


def test_without_hard_links_ranks_agree_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the file system has no hard links, the claim is created in place."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert join(tmp_path, 0) == join(tmp_path, 1)


def test_too_many_claims_are_an_error_that_says_what_to_remove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for a free claim is bounded, and leaves no folder behind when it fails."""
    monkeypatch.setattr(claim, "MAX_TRIES", 2)
    join(tmp_path, 0)
    join(tmp_path, 0)
    with pytest.raises(FolderRefused, match="Delete the files"):
        join(tmp_path, 0)
    assert len(runs(tmp_path)) == 2


def join_attempt(parent: Path, rank: int, attempt: int, port: str) -> str:
    """As a rank of torchrun does: each attempt has a port of its own, the job has an id."""
    create = lambda: folder.create_run(str(parent), "try", {}, "0.1.0")  # noqa: E731
    return claim.agree(str(parent), f"job {attempt} {port}", claim.Member(f"rank-{rank}", attempt), create, "job")


def test_a_later_attempt_joins_the_run_of_the_first(tmp_path: Path) -> None:
    """Each attempt has another key; what they share leads to one run."""
    found = {
        join_attempt(tmp_path, rank, attempt, port)
        for attempt, port in ((0, "a"), (1, "b"), (2, "c"))
        for rank in (0, 1)
    }
    assert len(found) == 1
    assert runs(tmp_path) == [os.path.basename(*found)]


def test_a_later_attempt_of_a_job_that_reuses_an_id_joins_its_own_run(tmp_path: Path) -> None:
    """Two jobs with one id: the second attempt of the second is not taken for one of the first."""
    first = join_attempt(tmp_path, 0, 0, "a")
    second = join_attempt(tmp_path, 0, 0, "b")
    assert first != second
    assert join_attempt(tmp_path, 0, 1, "c") == second
    assert join_attempt(tmp_path, 1, 1, "c") == second


def test_a_first_attempt_that_left_no_run_does_not_matter(tmp_path: Path) -> None:
    """The run was removed, or the first attempt was not recorded."""
    shutil.rmtree(join_attempt(tmp_path, 0, 0, "a"))
    assert join_attempt(tmp_path, 0, 1, "b") == join_attempt(tmp_path, 1, 1, "b")
    assert len(runs(tmp_path)) == 1
