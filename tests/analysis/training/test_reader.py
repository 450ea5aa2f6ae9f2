"""Reading what steps are made of: C gives the same columns as NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.store.slots import by_numpy, slots

from sonde import native
from sonde.analysis.records.names import NameCount
from sonde.analysis.training.reader import NONE, Room, Wanted, _Sorting
from sonde.store import probe
from sonde.store.process import read_names
from sonde.store.reading.segment import Slice, cut
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
@given(st.integers(0, 2**32), st.integers(2, 300), st.booleans(), st.booleans())
def test_a_trail_has_the_same_columns(folder: Path, seed: int, count: int, numbered: bool, aside: bool) -> None:
    """Spans, updates, counters, and the waits of other threads."""
    names = read_names(folder, []).names
    codes = {(probe.PROBE, probe.INPUT_WAIT): 0, (probe.PROBE, probe.FORWARD): 2, (probe.PROBE, probe.BACKWARD): 3}
    wanted = Wanted(codes, [1] if numbered else [0, 1], {name for _, name in names.values()}, numbered, aside)
    name_counts = [NameCount("span", probe.PROBE, probe.FORWARD, 1, False, 5)]

    def told() -> dict[str, Any]:
        reading = _Sorting(names, 1000, wanted, name_counts, Room())
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
