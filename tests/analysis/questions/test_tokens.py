"""Tokens in a second, and how many of them are padding."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.diagnosis.building import processes
from tests.diagnosis.lessons import SAMPLED, counted, learned

from sonde.analysis.questions.tokens import tokens
from sonde.analysis.run import open_run
from sonde.store import probe
from sonde.testing import build_run


def test_tokens_are_those_of_the_field_with_the_most(tmp_path: Path) -> None:
    """The padding is weighted by them; the rate is that of the steps after the warm-up."""
    numbers = {"ids": (512, 0.25), "labels": (64, 0.0)}
    records = [
        counted(field, probe.FIELD + what, value, step, None)
        for step in SAMPLED
        for field, values in numbers.items()
        for what, value in zip(("tokens", "padding"), values, strict=True)
    ]
    with open_run(build_run(tmp_path / "run", learned(records))) as run:
        found = tokens(run)
        ((per_s,),) = run.sql("SELECT count(*) / (sum(dur_ns) / 1e9) FROM steps WHERE NOT warmup").fetchall()
    assert found is not None
    assert (found.field, found.batches, found.per_batch, found.padding) == ("ids", len(SAMPLED), 512, 0.25)
    assert found.per_s == pytest.approx(512 * per_s)


def test_a_run_without_token_ids_has_none(tmp_path: Path) -> None:
    """Missing is not zero."""
    with open_run(build_run(tmp_path / "run", processes())) as run:
        assert tokens(run) is None
