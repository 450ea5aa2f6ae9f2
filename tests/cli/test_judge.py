"""The verdict on a run that is watched: asked in a process of its own, and never waited for."""

from __future__ import annotations

import time
from pathlib import Path

from sonde.analysis.run import open_run
from sonde.cli.judge import Judge
from sonde.testing import build_training
from sonde.views.report import report
from sonde.views.watch import Opinion

SECONDS = 60


def heard(judge: Judge) -> Opinion | None:
    """The verdict, after a while."""
    until = time.monotonic() + SECONDS
    while judge.look(over=True) is None and time.monotonic() < until:
        time.sleep(0.05)
    return judge.opinion


def test_a_run_that_is_over_is_judged_once(tmp_path: Path) -> None:
    """By the same code as the report."""
    judge = Judge(build_training(tmp_path / "run", steps=30))
    assert judge.look(over=True) is None
    opinion = heard(judge)
    assert opinion is not None
    assert opinion.kind == "COMPUTE_BOUND"
    assert judge.look(over=True) is opinion
    assert judge.asking is False


def test_the_verdict_is_that_of_the_report(tmp_path: Path) -> None:
    """Word for word."""
    run = build_training(
        tmp_path / "run", steps=30, workers=1, item_ns=lambda _, index: 40_000_000 if index == 21 else 1000
    )
    opinion = heard(Judge(run))
    with open_run(run) as opened:
        said = report(opened).verdict
    assert opinion == Opinion(said.kind, said.severity, said.why, said.next)


def test_closing_ends_the_asking(tmp_path: Path) -> None:
    """Nothing is left behind."""
    judge = Judge(build_training(tmp_path / "run", steps=30))
    judge.look(over=False)
    assert judge.asking
    judge.close()
    assert not judge.asking


def test_a_run_that_cannot_be_read_has_no_verdict(tmp_path: Path) -> None:
    """And that is no error."""
    judge = Judge(tmp_path / "nothing")
    judge.look(over=True)
    until = time.monotonic() + SECONDS
    while judge.asking and time.monotonic() < until:
        judge.look(over=True)
        time.sleep(0.05)
    assert judge.opinion is None
