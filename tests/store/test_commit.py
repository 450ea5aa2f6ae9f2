"""The commit is read from the files of the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from sonde.store.commit import commit_of

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git makes the repositories of these tests")


def git(folder: Path, *command: str) -> str:
    quiet = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "PATH": os.environ["PATH"]}
    who = ["-c", "user.name=T", "-c", "user.email=t@localhost"]
    made = subprocess.run(["git", *who, *command], cwd=folder, env=quiet, capture_output=True, text=True, check=True)
    return made.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


@needs_git
def test_a_branch_is_followed_to_its_commit(repository: Path) -> None:
    """HEAD names a branch, and its file holds the commit; also from a folder inside."""
    inside = repository / "a" / "b"
    inside.mkdir(parents=True)
    assert commit_of(str(inside)) == git(repository, "rev-parse", "HEAD")


@needs_git
def test_packed_branches_are_found(repository: Path) -> None:
    """After `git pack-refs` the branch stands in packed-refs."""
    git(repository, "pack-refs", "--all")
    assert commit_of(str(repository)) == git(repository, "rev-parse", "HEAD")


@needs_git
def test_a_detached_head_is_the_commit_itself(repository: Path) -> None:
    """HEAD may hold the commit."""
    git(repository, "checkout", "-q", "--detach")
    assert commit_of(str(repository)) == git(repository, "rev-parse", "HEAD")


@needs_git
def test_a_worktree_leads_to_its_repository(repository: Path) -> None:
    """In a worktree .git is a file, and branches lie elsewhere."""
    git(repository, "worktree", "add", "-q", "../tree", "-b", "side")
    tree = repository.parent / "tree"
    git(tree, "commit", "-q", "--allow-empty", "-m", "second")
    assert commit_of(str(tree)) == git(tree, "rev-parse", "HEAD")
    git(repository, "pack-refs", "--all")
    assert commit_of(str(tree)) == git(tree, "rev-parse", "HEAD")


def test_no_repository_is_no_commit() -> None:
    """The root folder is in no repository."""
    assert commit_of("/") is None


@pytest.mark.parametrize(
    "head", ["", "ref: ../../x\n", "ref: refs/heads/none\n", "ref: refs/\0\n", "garbage", "\xff" * 9]
)
def test_a_broken_repository_is_no_commit(tmp_path: Path, head: str) -> None:
    """Whatever stands in HEAD, the answer is a commit or nothing."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text(head, encoding="latin-1")
    assert commit_of(str(tmp_path)) is None


def test_a_named_pipe_does_not_block(tmp_path: Path) -> None:
    """A pipe in place of HEAD is not waited for."""
    (tmp_path / ".git").mkdir()
    os.mkfifo(tmp_path / ".git" / "HEAD")
    assert commit_of(str(tmp_path)) is None
