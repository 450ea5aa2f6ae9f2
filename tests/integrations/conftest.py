"""Trainings run on one thread, and what is not installed is not tested."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")
from tests.integration.conftest import programs  # noqa: E402

__all__ = ["programs"]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """More would not be quicker, and results are to be the same to the bit."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
