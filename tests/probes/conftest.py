"""What tests of the probes of loaders share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sonde import hooks


@pytest.fixture
def nothing_left(expected: set[str]) -> Iterator[None]:
    """Nothing fails that is not expected to, and nothing stays patched."""
    yield
    assert hooks.describe() == []
