"""What is kept of a run, as a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.compare.building import MS, training

from sonde.analysis.run import open_run
from sonde.compare.summary import OWN, STEP, read, summarize, to_json
from sonde.compare.verdict import compare_times
from sonde.errors import RunUnreadable
from sonde.store import probe
from sonde.store.record import COUNTER
from sonde.testing import BuiltRecord, build_run, training_processes


def kept(path: Path, **more: object) -> Path:
    """A baseline file of a training."""
    with open_run(training(path, **more)) as run:  # type: ignore[arg-type]
        text = to_json(summarize(run))
    file = path.with_suffix(".json")
    file.write_text(text)
    return file


def test_a_summary_is_read_back_as_it_was(tmp_path: Path) -> None:
    """And compares like the run."""
    with open_run(training(tmp_path / "a", workers=2, item_ns=lambda _rank, _index: MS, layers=("x",))) as run:
        made = summarize(run)
    (tmp_path / "a.json").write_text(to_json(made))
    assert read(tmp_path / "a.json") == made
    assert compare_times(made, read(tmp_path / "a.json")).verdict == "same"


def test_a_summary_of_many_steps_has_kilobytes(tmp_path: Path) -> None:
    """It does not grow with the run."""
    assert kept(tmp_path / "a", steps=5000, ranks=2).stat().st_size < 40_000


def test_medians_are_those_of_the_report(tmp_path: Path) -> None:
    """One number has one definition."""
    with open_run(training(tmp_path / "a")) as run:
        steps = summarize(run).steps
        ((p50, mean),) = run.sql(
            "SELECT quantile_cont(dur_ns, 0.5), avg(dur_ns) FROM steps WHERE NOT warmup"
        ).fetchall()
    assert (steps.p50_ns, steps.mean_ns) == (p50, mean)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        "not json",
        '{"kind": "sonde baseline", "schema": 99}',
        '{"kind": "sonde baseline", "schema": 1}',
        '{"kind": "sonde baseline", "schema": 1, "steps": []}',
    ],
)
def test_a_file_that_is_no_baseline_is_refused(tmp_path: Path, content: str) -> None:
    """With a sentence."""
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(RunUnreadable, match="is not a baseline"):
        read(tmp_path / "x.json")


def test_a_baseline_with_damaged_numbers_is_refused(tmp_path: Path) -> None:
    """Texts where numbers should be."""
    file = kept(tmp_path / "a")
    content = json.loads(file.read_text())
    content["steps"]["points"] = [["x"]]
    file.write_text(json.dumps(content))
    with pytest.raises(RunUnreadable, match="is not a baseline"):
        read(file)


def test_waits_for_a_core_are_left_out_of_the_own_time_of_steps(tmp_path: Path) -> None:
    """Half of each step was such a wait."""
    (process,) = training_processes(steps=80)
    begun, ended = (of(one.start for one in process.records) for of in (min, max))
    looks = [
        BuiltRecord(probe.WAITED, cat=probe.SYSTEM, kind=COUNTER, start=moment, value=(moment - begun) / 2)
        for moment in range(begun, ended + 100 * MS, 50 * MS)
    ]
    path = build_run(tmp_path / "a", [process._replace(records=[*process.records, *looks])])
    with open_run(path) as run:
        steps = summarize(run).steps
    assert steps.phase(OWN) == pytest.approx(steps.phase(STEP) / 2, rel=0.02)


def test_without_looks_at_waits_the_own_time_of_steps_is_not_known(tmp_path: Path) -> None:
    """Missing is not zero."""
    with open_run(training(tmp_path / "a")) as run:
        assert OWN not in summarize(run).steps.means
