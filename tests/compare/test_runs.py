"""Two recorded runs, and several, from their folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.compare.building import MS, training

from sonde.analysis.run import open_run
from sonde.compare.runs import compare_runs, rank_runs


def test_all_parts_of_two_runs_are_compared(tmp_path: Path) -> None:
    """Time, layers, memory, items, findings, settings and numbers."""
    more: dict[str, Any] = {
        "layers": ("encoder", "head"),
        "rss": lambda _rank, _step: 5 * 10**8,
        "loss": float,
        "workers": 2,
        "epoch_steps": 20,
    }
    a = training(
        tmp_path / "a", item_ns=lambda _rank, index: (50 if index == 7 else 1) * MS, **more, command=["python", "x.py"]
    )
    b = training(
        tmp_path / "b", seed=2, item_ns=lambda _rank, _index: MS, slower={"input_wait": 20.0}, **more, command=["y"]
    )
    with open_run(a) as one, open_run(b) as other:
        found = compare_runs(one, other)
    assert found.verdict == "slower"
    assert {one.name for one in found.layers} == {"encoder", "head"}
    assert [one.ratio.ratio for one in found.memory] == [1.0, 1.0]
    assert (found.items.rows[0].item, found.items.rows[0].a_ns, found.items.rows[0].b_ns) == ("7", 50 * MS, MS)
    assert "INPUT_BOUND" in [one.kind for one in found.findings.new]
    assert ("command", "x.py", "y") in [(one.name, one.a, one.b) for one in found.settings]
    assert found.numbers.identical is True


def test_a_run_that_visited_fewer_items_says_so(tmp_path: Path) -> None:
    """The same loader arguments, and half of the steps of an epoch."""
    a, b = (
        training(tmp_path / name, steps=steps, workers=2, epoch_steps=100) for name, steps in (("a", 60), ("b", 30))
    )
    with open_run(a) as one, open_run(b) as other:
        visited = {found.name: (found.a, found.b) for found in compare_runs(one, other).settings}["items.visited"]
        counts = [run.sql("SELECT count(DISTINCT index) FROM items").fetchall()[0][0] for run in (one, other)]
    assert visited == tuple(counts)


def test_several_runs_are_ranked(tmp_path: Path) -> None:
    """The fastest first; the baseline is marked."""
    factors = {"middle": 1.0, "slow": 3.0, "quick": 0.3}
    paths = [training(tmp_path / name, seed=3, slower={"forward": factor}) for name, factor in factors.items()]
    with open_run(paths[0]) as one, open_run(paths[1]) as two, open_run(paths[2]) as three:
        by_time, by_verdict = (rank_runs([one, two, three], by) for by in ("p50", "verdict"))
    assert [row.run for row in by_time.ranking] == ["quick", "middle", "slow"]
    assert [row.verdict for row in by_verdict.ranking] == ["faster", None, "slower"]
    assert [row.baseline for row in by_time.ranking] == [False, True, False]
