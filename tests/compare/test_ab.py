"""How often `sonde gate --ab` is right, with real rounds of a real training on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from benchmarks.ab import pool, trials


@pytest.mark.soak
def test_a_tenth_slower_is_found_and_the_same_program_passes(tmp_path: Path) -> None:
    """In 95 of 100 trials, and in 270 of 300; at most 3 of these fail."""
    pool.record(tmp_path, 40)
    found = pool.read(tmp_path)
    same, slower = (trials.outcome(found, case) for case in trials.CASES[:2])
    assert slower.failed >= 0.95
    assert same.failed <= 0.01
    assert same.passed >= 0.90
