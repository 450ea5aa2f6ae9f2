"""The lanes of a timeline."""

from __future__ import annotations

from pathlib import Path

from sonde.analysis.questions.timeline.lanes import lane_ids, lanes
from sonde.analysis.run import Run
from sonde.testing import build_run, training_processes


def test_the_workers_of_one_number_are_one_lane_whichever_thread_recorded_first(tmp_path: Path) -> None:
    """A thread that has no spans, such as that of `--sample`, may have taken the first lane of one of them."""
    trainer, first, second = training_processes(steps=8, workers=2)
    again = second._replace(
        n=1,
        process={**(second.process or {}), "worker": 0},
        records=[one._replace(thread=2) for one in second.records],
    )
    with Run([build_run(tmp_path / "run", [trainer, first, again])]) as run:
        (worker,) = [one for one in lanes(run) if one.worker == 0]
        assert len(worker.threads) == 2
        assert {lane_ids(run)[process, lane or 0] for process, lane in worker.threads} == {worker.id}
