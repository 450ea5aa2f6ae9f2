"""The verdict on a run that is watched: asked in a process of its own, and never waited for."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sonde import system
from sonde.analysis.run import open_run
from sonde.cli.live.liveverdict import VerdictProcess
from sonde.testing import build_training
from sonde.views.report import report
from sonde.views.watch import Opinion

SECONDS = 240  # for anything to happen, on a busy machine


def heard(judge: VerdictProcess) -> Opinion | None:
    """The verdict, after a while."""
    until = time.monotonic() + SECONDS
    while judge.look(over=True) is None and time.monotonic() < until:
        time.sleep(0.05)
    return judge.opinion


def test_a_run_that_is_over_is_judged_once(tmp_path: Path) -> None:
    """By the same code as the report."""
    judge = VerdictProcess(build_training(tmp_path / "run", steps=30))
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
    opinion = heard(VerdictProcess(run))
    with open_run(run) as opened:
        said = report(opened).verdict
    assert opinion == Opinion(said.kind, said.severity, said.why, said.next)


def test_closing_ends_the_asking(tmp_path: Path) -> None:
    """Nothing is left behind."""
    judge = VerdictProcess(build_training(tmp_path / "run", steps=30))
    judge.look(over=False)
    assert judge.asking
    judge.close()
    assert not judge.asking


def test_a_run_that_cannot_be_read_has_no_verdict(tmp_path: Path) -> None:
    """And that is no error."""
    judge = VerdictProcess(tmp_path / "nothing")
    judge.look(over=True)
    until = time.monotonic() + SECONDS
    while judge.asking and time.monotonic() < until:
        judge.look(over=True)
        time.sleep(0.05)
    assert judge.opinion is None


def test_where_memory_is_scarce_no_verdict_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left belongs to the program; that it is so is said."""
    monkeypatch.setattr(system, "room", lambda _pid: 230_000_000)
    judge = VerdictProcess(build_training(tmp_path / "run", steps=30))
    assert judge.look(over=False) is None
    assert not judge.asking
    assert judge.notice == "no live verdict: it needs 100 MB of memory, 230 MB are free. Later, run: sonde report run"


def test_when_there_is_memory_again_the_verdict_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that of a run which ended meanwhile."""
    left = [230_000_000]
    monkeypatch.setattr(system, "room", lambda _pid: left[0])
    judge = VerdictProcess(build_training(tmp_path / "run", steps=30))
    judge.look(over=True)
    left[0] = 10**9
    assert heard(judge) is not None
    assert judge.notice is None


def test_how_much_it_needs_the_last_verdict_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long run has more to be read than a short one."""
    monkeypatch.setattr("sonde.cli.live.liveverdict.NEEDED", 1)
    judge = VerdictProcess(build_training(tmp_path / "run", steps=30))
    assert heard(judge) is not None
    assert 50_000_000 < judge._needed < 300_000_000


def test_the_kernel_ends_the_verdict_before_the_program(tmp_path: Path) -> None:
    """Should there be too little memory all the same."""
    judge = VerdictProcess(build_training(tmp_path / "run", steps=30))
    judge.look(over=False)
    assert judge._asked is not None
    assert Path(f"/proc/{judge._asked.pid}/oom_score_adj").read_text() == "1000\n"
    judge.close()


def test_a_verdict_that_the_kernel_ended_is_asked_for_with_more_room_only(tmp_path: Path) -> None:
    """What was left was too little for it."""
    judge = VerdictProcess(build_training(tmp_path / "run", steps=30))
    judge.look(over=False)
    assert judge._asked is not None
    before = judge._needed
    judge._asked.kill()
    judge._asked.wait()
    judge.look(over=False)
    assert judge._needed == 2 * before
    judge.close()


def test_the_next_verdict_waits_for_what_the_last_one_cost_a_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy host a process of low priority takes long, and costs no more for it."""
    monkeypatch.setattr("sonde.cli.live.liveverdict.EVERY", 0.0)
    judge = VerdictProcess(build_training(tmp_path / "run", steps=30))
    judge.look(over=False)
    judge._begun -= 3600 * 10**9  # it was asked an hour ago
    until = time.monotonic() + SECONDS
    while judge.opinion is None and time.monotonic() < until:
        judge.look(over=False)
        time.sleep(0.05)
    assert 0 < judge._due - time.monotonic() < 600
    judge.close()


def test_a_verdict_has_an_age_until_the_run_is_over(tmp_path: Path) -> None:
    """That of the moment when the run was read for it."""
    judge = VerdictProcess(build_training(tmp_path / "run", steps=30))
    until = time.monotonic() + SECONDS
    while (opinion := judge.look(over=False)) is None and time.monotonic() < until:
        time.sleep(0.05)
    assert opinion is not None
    assert opinion.age_ns is not None
    while (opinion := judge.look(over=True)) and opinion.age_ns is not None and time.monotonic() < until:
        time.sleep(0.05)
    assert opinion is not None
    assert opinion.age_ns is None
