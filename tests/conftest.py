"""For all tests: what they and the programs they start leave in the folder for temporary files goes when they are over."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def temporary_files() -> Iterator[None]:
    """torchrun leaves a folder for each of its runs, and processes that are killed leave theirs."""
    # Short, because the paths of sockets must be.
    with (
        tempfile.TemporaryDirectory(prefix="tests-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TMPDIR", str(Path(folder).resolve()))  # for programs; this process keeps the folder that it knows
        yield
