"""What a tracker gets of a run: the numbers of the table `steps`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from sonde.analysis.live.run import Live
from sonde.analysis.run import open_run
from sonde.testing import build_training
from sonde.trackers import follow, metrics
from sonde.trackers.follow import TrackerFeed
from sonde.trackers.metrics import StepPoints
from sonde.trackers.tensorboard import TensorBoard
from sonde.trackers.tracker import StepValues


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Twelve steps of one rank, with memory."""
    return build_training(tmp_path / "run", steps=12, rss=lambda rank, step: 1000 + step)


def test_points_are_the_steps_of_the_table(run: Path) -> None:
    """Total, each phase, and the memory at the last one; a phase that was not recorded has no value."""
    found = StepPoints(Live(run)).look()
    with open_run(run) as opened:
        query = "SELECT step, dur_ns / 1e6, forward_ns / 1e6, residual_ns / 1e6 FROM steps ORDER BY step"
        expected = opened.sql(query).fetchall()
        ((end,),) = opened.sql("SELECT max(start_ns + dur_ns) FROM steps").fetchall()
    names = ("total_ms", "forward_ms", "residual_ms")
    assert [(one.step, *(one.values[f"sonde/step/{name}"] for name in names)) for one in found] == [
        (step, *(pytest.approx(value) for value in values)) for step, *values in expected
    ]
    assert "sonde/step/h2d_ms" not in found[0].values
    assert found[-1].values["sonde/memory/rss_bytes"] == 1011
    assert found[-1].time_ns == end


def test_a_second_look_gives_nothing_twice(run: Path) -> None:
    """And nothing was skipped."""
    several = StepPoints(Live(run))
    assert len(several.look()) == 12
    assert several.look() == []
    assert several.skipped == 0


def test_many_steps_become_means(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the number of the last one of each group; the mean of all is that of the table."""
    monkeypatch.setattr(metrics, "MOST", 4)
    found = StepPoints(Live(run)).look()
    assert [one.step for one in found] == [2, 5, 8, 11]
    with open_run(run) as opened:
        ((mean,),) = opened.sql("SELECT avg(dur_ns) / 1e6 FROM steps").fetchall()
    assert sum(one.values["sonde/step/total_ms"] for one in found) / 4 == pytest.approx(mean)


def test_ranks_have_their_own_names(tmp_path: Path) -> None:
    """Only where there are several."""
    found = StepPoints(Live(build_training(tmp_path / "run", ranks=2, steps=3))).look()
    assert [(one.step, rank) for one in found for rank in (0, 1) if f"sonde/rank {rank}/step/total_ms" in one.values] == [
        (0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1),
    ]  # fmt: skip


def test_tensorboard_reads_what_was_written(run: Path, tmp_path: Path) -> None:
    """Scalars by step, the verdict as text, and the page beside them."""
    folder = tmp_path / "board"
    feed = TrackerFeed("tensorboard", lambda: TensorBoard(folder))
    live = Live(run)
    feed.add(StepPoints(live).look(), 0)
    assert follow.finish(run, feed)
    read = EventAccumulator(str(folder))
    read.Reload()
    forward = read.Scalars("sonde/step/forward_ms")
    assert [(one.step, one.value) for one in forward] == [(step, 3.0) for step in range(12)]
    text = read.Tensors("sonde/verdict/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "| sonde/verdict/kind | INSUFFICIENT_DATA |" in text
    assert "</html>" in (folder / follow.PAGE).read_text("utf-8")


class Failing:
    """A tracker that fails until it is told otherwise."""

    def __init__(self) -> None:
        self.fails = True
        self.got: list[StepValues] = []

    def log(self, points: Sequence[StepValues]) -> None:
        """Take or fail."""
        if self.fails:
            raise RuntimeError("no network")
        self.got += points

    def finish(self, outcome: Mapping[str, float | str], page: Path) -> None:
        """The same."""
        self.log([])
        self.outcome = outcome


def some(count: int) -> list[StepValues]:
    return [StepValues(step, step, {"x": float(step)}) for step in range(count)]


def test_what_a_tracker_refuses_is_sent_later(capsys: pytest.CaptureFixture[str]) -> None:
    """And said once; it is not tried again at each look."""
    tracker = Failing()
    feed = TrackerFeed("wandb", lambda: tracker)
    for point in some(3):
        feed.add([point], 1.0)
    tracker.fails = False
    feed.add([], 100.0)
    assert [one.step for one in tracker.got] == [0, 1, 2]
    assert capsys.readouterr().err == "sonde: not in wandb: RuntimeError: no network\n"


def test_what_is_given_up_is_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The oldest points go first; the outcome says how many."""
    monkeypatch.setattr(follow, "MOST_WAITING", 10)
    tracker = Failing()
    feed = TrackerFeed("wandb", lambda: tracker)
    feed.add(some(25), 1.0)
    tracker.fails = False
    assert feed.finish({}, tmp_path)
    assert [one.step for one in tracker.got] == list(range(15, 25))
    assert tracker.outcome["sonde/tracker/dropped"] == 15


def test_a_tracker_that_does_not_open_costs_nothing_else(tmp_path: Path) -> None:
    """Whatever it raises."""

    def broken() -> Failing:
        raise MemoryError

    feed = TrackerFeed("wandb", broken)
    feed.add(some(3), 1.0)
    assert not feed.finish({}, tmp_path)
