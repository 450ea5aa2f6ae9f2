"""Trainings run on one thread, and what is not installed is not tested."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from tests.integration.conftest import programs  # noqa: E402

__all__ = ["programs"]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """More would not be quicker, and the suite has few cores."""
    torch.set_num_threads(1)
