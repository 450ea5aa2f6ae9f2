"""Findings about files that were read."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.diagnosis.building import diagnosed, kinds
from tests.diagnosis.catalogue import cold


@pytest.mark.parametrize(
    ("epochs", "when", "advice"),
    [(1, "almost all in the first epoch", "before training"), (2, "in later epochs too", "do not stay in memory")],
)
def test_cold_reads_say_whether_the_page_cache_helps_later(epochs: int, when: str, advice: str, tmp_path: Path) -> None:
    """Data that stays in memory needs other advice than data that does not."""
    verdict = diagnosed(tmp_path, cold(epochs)).verdict
    assert verdict.kind == "COLD_READS"
    assert when in verdict.why
    assert advice in verdict.next


def test_a_disk_that_is_nearly_as_fast_as_the_page_cache_is_not_reported(tmp_path: Path) -> None:
    """The bytes come from the disk, and nobody waits longer for that."""
    assert "COLD_READS" not in kinds(diagnosed(tmp_path, cold(times=2)))
