"""Charts of learning: what changes now and then keeps its value in between, and fields of batches have their statistics."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.diagnosis.building import processes
from tests.diagnosis.lessons import counted, learned

from sonde.analysis.run import open_run
from sonde.store import probe
from sonde.testing import BuiltRecord, build_run
from sonde.views.charts import Drawing, learning


def drawn(folder: Path, records: list[BuiltRecord]) -> dict[str, Drawing]:
    """The charts of a run with these counters, by their titles."""
    with open_run(build_run(folder / "run", learned(records))) as run:
        return {one.title: one for one in learning(run)}


def test_a_learning_rate_stays_until_it_changes(tmp_path: Path) -> None:
    """Two points where it does: the value before, and the new one; the last one lasts until the end."""
    rates = [counted(probe.RATE, probe.PROBE, value, step, 1) for step, value in ((0, 0.1), (20, 0.01))]
    (line,) = drawn(tmp_path, rates)["Learning rate"].lines
    assert line.name == "group 1"
    assert [value for _, value in line.points] == [0.1, 0.1, 0.01, 0.01]
    (begun, _), (before, _), (after, _), (end, _) = line.points
    assert (begun, end) == (0.0, 1.0)
    assert begun < before == after < end


def test_groups_of_several_optimizers_have_the_names_of_these(tmp_path: Path) -> None:
    """A GAN has two."""
    rates = [
        counted(probe.RATE, probe.PROBE, value, step, optimizer << probe.GROUP_BITS)
        for optimizer in (0, 1)
        for step, value in ((0, 0.1), (20, 0.2))
    ]
    assert sorted(line.name for line in drawn(tmp_path, rates)["Learning rate"].lines) == [
        "optimizer 0, group 0",
        "optimizer 1, group 0",
    ]


def test_the_scale_of_gradients_is_drawn(tmp_path: Path) -> None:
    """It halves when gradients overflow."""
    scales = [counted("scale", probe.LEARNING, value, step, None) for step, value in ((0, 65536.0), (5, 32768.0))]
    (line,) = drawn(tmp_path, scales)["Scale of gradients"].lines
    assert [value for _, value in line.points] == [65536, 65536, 32768, 32768]


@pytest.mark.parametrize(
    ("what", "title"),
    [
        ("mean", "Mean of each field of a batch"),
        ("std", "Spread of each field of a batch"),
        ("nonfinite", "Share of values of a batch that are not finite"),
        ("padding", "Share of padding in a batch"),
    ],
)
def test_statistics_of_fields_are_drawn(tmp_path: Path, what: str, title: str) -> None:
    """Each in a chart of its own."""
    fields = [counted("images", probe.FIELD + what, 0.25, step, None) for step in (0, 10, 20)]
    (line,) = drawn(tmp_path, fields)[title].lines
    assert (line.name, {value for _, value in line.points}) == ("images", {0.25})


def test_a_run_without_any_of_it_has_no_charts_of_learning(tmp_path: Path) -> None:
    """Also one whose learning rate never changes."""
    with open_run(build_run(tmp_path / "run", processes())) as run:
        assert learning(run) == []
    assert drawn(tmp_path / "still", [counted(probe.RATE, probe.PROBE, 0.1, 0, 0)]) == {}
