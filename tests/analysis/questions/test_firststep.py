"""The time to the first step: parts that are known add up, and the rest is untracked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sonde.analysis.questions.firststep import FirstStep, first_step
from sonde.analysis.run import open_run
from sonde.analysis.seal import seal
from sonde.store import probe
from sonde.store.record import MARK
from sonde.testing import MS, START_NS, BuiltProcess, BuiltRecord, build_run, training_processes
from sonde.views.words import first_step_line

BEFORE = 5000 * MS  # of the process, until training begins
FIRST = {"input_wait": 400 * MS, "forward": 900 * MS, "backward": 5 * MS, "optimizer": MS, "residual": 10 * MS}
LATER = {**FIRST, "input_wait": 2 * MS, "forward": 100 * MS}


def built(folder: Path, *more: BuiltRecord, **startup: Any) -> Path:
    """A training that begins 5 s after its process; `more` records of it."""
    (one,) = training_processes(steps=8, phases=lambda rank, step: LATER if step else FIRST)
    args = {"age_ns": BEFORE, "imports": {"torch": 3000 * MS}, **startup}
    mark = BuiltRecord(probe.STARTUP, probe.SETUP, kind=MARK, start=START_NS, args=args)
    records = [each._replace(seq=number) for number, each in enumerate(one.records, 1)]
    extra = [each._replace(seq=len(records) + number) for number, each in enumerate([mark, *more], 1)]
    return build_run(folder, [one._replace(records=[*records, *extra])])


def of(folder: Path) -> FirstStep:
    with open_run(folder) as run:
        found = first_step(run)
    assert found is not None
    return found


def parts(found: FirstStep) -> dict[str, float]:
    return {one.name: one.ns / MS for one in found.parts}


@pytest.mark.parametrize("sealed", [False, True], ids=["raw", "sealed"])
def test_the_parts_of_the_first_step_add_up(tmp_path: Path, sealed: bool) -> None:
    """Imports, the start of workers, the first batch, what the first calls took more, the step, and the rest."""
    key, args = probe.batch_key(0, 0, 0), {"workers": 2}
    iteration = BuiltRecord(probe.ITER, probe.PROBE, start=START_NS, dur=150 * MS, key=key, args=args, step=0)
    folder = built(tmp_path / "run", iteration)
    if sealed:
        seal(folder)
    found = of(folder)
    known = {"import torch": 3000, "worker start": 150, "first batch": 250, "first calls": 800, "first step": 106}
    assert parts(found) == pytest.approx({**known, "untracked": 2010})
    assert (found.ns, found.since) == (BEFORE + sum(FIRST.values()), "process")
    assert first_step_line(found).startswith(
        "6.32 s after the start of the process (rank 0): import torch 3.00 s, worker start 150 ms"
    )


def test_spans_of_the_program_name_what_comes_before(tmp_path: Path) -> None:
    """Not those that lie behind the first step."""
    spans = [
        BuiltRecord("read index", "user", start=START_NS - 1500 * MS, dur=1200 * MS),
        BuiltRecord("read index", "user", start=START_NS + 1500 * MS, dur=100 * MS),
    ]
    assert parts(of(built(tmp_path / "run", *spans)))["read index"] == 1200


def test_a_span_around_the_imports_counts_once(tmp_path: Path) -> None:
    """What is known twice is not added up twice."""
    around = BuiltRecord("set up", "user", start=START_NS - 4900 * MS, dur=4900 * MS)
    found = of(built(tmp_path / "run", around))
    assert sum(one.ns for one in found.parts) == found.ns
    assert "set up" not in parts(found)


def test_without_the_age_of_the_process_it_counts_from_the_recording(tmp_path: Path) -> None:
    """As in a notebook."""
    found = of(built(tmp_path / "run", age_ns=None, imports={}))
    assert (found.ns, found.since) == (sum(FIRST.values()), "recording")


def test_an_age_of_fifty_years_is_none(tmp_path: Path) -> None:
    """It comes from a faked clock. When the imports were is not known either, so the parts are no more than the whole."""
    found = of(built(tmp_path / "run", age_ns=50 * 365 * 86_400 * 1000 * MS))
    assert (found.ns, found.since) == (sum(FIRST.values()), "recording")
    assert sum(one.ns for one in found.parts) == found.ns


def test_a_run_without_steps_has_none(tmp_path: Path) -> None:
    """Nothing is made up."""
    with open_run(build_run(tmp_path / "run", [BuiltProcess([BuiltRecord()])])) as run:
        assert first_step(run) is None
