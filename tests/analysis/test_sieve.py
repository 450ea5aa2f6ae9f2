"""Reading long runs in C: the sieve lets the same records pass as NumPy does, and a trail has the same columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.store.slots import by_numpy, slots

from sonde.analysis import sieve
from sonde.analysis.census import Named
from sonde.analysis.sieve import Sieve
from sonde.analysis.trail import NONE, Room, Wanted, _Reading
from sonde.store import native, probe
from sonde.store.card import read_names
from sonde.store.segment import Slice, cut
from sonde.testing import build_run, training_processes

pytestmark = pytest.mark.skipif(native.slots is None, reason="the C part was not built")
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A process folder that has the names of a training."""
    run = build_run(tmp_path_factory.mktemp("names") / "run", training_processes(ranks=1, steps=2, loss=float))
    return next(path.parent for path in run.glob("*/names.jsonl"))


def slices(seed: int, count: int, threads: int) -> list[Slice]:
    """Some slots, in two slices; many names are those of steps."""
    given = slots(seed, count, threads)
    given["key"][::7] = NONE
    given["args"][::11] = 1
    first, thread, left = cut(given[: count // 2], 1, 60)
    second, *_ = cut(given[count // 2 :], thread, left)
    return [first, second]


@QUICK
@given(st.integers(0, 2**32), st.integers(2, 300), st.integers(1, 3))
def test_the_same_records_pass(folder: Path, seed: int, count: int, threads: int) -> None:
    """What passes, its census and its times, and what is kept."""

    def told() -> list[object]:
        found = Sieve(folder, 10**6)
        for one in slices(seed, count, threads):
            found.watch(one, one.what)
        kept = [
            [piece.slots.tolist(), piece.seqs.tolist(), piece.what.tolist(), piece.threads.tolist()]
            for piece in found._pieces
        ]
        return [found.passed, found.first, found.last, found.census.rows(), kept]

    first = told()
    with by_numpy():
        assert told() == first


def test_many_turns_from_thread_to_thread_make_no_difference(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice of very many threads is looked at by NumPy."""
    one = slices(3, 300, 3)[0]
    found = Sieve(folder, 10**6)
    found.watch(one, one.what)
    monkeypatch.setattr(sieve, "MOST_TURNS", 0)
    other = Sieve(folder, 10**6)
    other.watch(one, one.what)
    assert found.passed == other.passed > 0
    assert found.census.rows() == other.census.rows()


@QUICK
@given(st.integers(0, 2**32), st.integers(2, 300), st.booleans(), st.booleans())
def test_a_trail_has_the_same_columns(folder: Path, seed: int, count: int, numbered: bool, aside: bool) -> None:
    """Spans, updates, counters, and the waits of other threads."""
    names = read_names(folder, []).names
    codes = {(probe.PROBE, probe.INPUT_WAIT): 0, (probe.PROBE, probe.FORWARD): 2, (probe.PROBE, probe.BACKWARD): 3}
    wanted = Wanted(codes, [1] if numbered else [0, 1], {name for _, name in names.values()}, numbered, aside)
    census = [Named("span", probe.PROBE, probe.FORWARD, 1, False, 5)]

    def told() -> dict[str, Any]:
        reading = _Reading(names, 1000, wanted, census, Room())
        for one in slices(seed, count, 3):
            reading.add(one)
        spans, updates, others, garbage, counters = reading.trail()
        tables = {"spans": spans, "updates": updates, "aside": others, "garbage": garbage, **counters}
        return {name: {key: _bytes(column) for key, column in table.items()} for name, table in tables.items()}

    first = told()
    with by_numpy():
        assert told() == first


def _bytes(column: Any) -> tuple[str, bytes]:
    """A column, also of values that are no numbers."""
    return str(column.dtype), np.ascontiguousarray(column).tobytes()
