"""The stacks of all threads: on demand, and when nothing goes on; in a file of the run folder."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")

from sonde import guard
from sonde.probes import step
from sonde.probes.process import sampler, stacks
from sonde.store.probe import stacks_signal
from sonde.testing import record

SIGNAL = stacks_signal() or 0

pytestmark = [
    pytest.mark.skipif(not SIGNAL, reason="there are no real-time signals here"),
    pytest.mark.usefixtures("expected"),
]


def files(run: Path) -> list[Path]:
    """The files with stacks of a run."""
    return sorted(run.glob("stacks-*.txt"))


def wait_for(condition: Callable[[], object]) -> None:
    """Come back when it is true; fail after half a minute."""
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.01)
    pytest.fail("it never came")


def rest_a_while(done: threading.Event) -> None:
    """A thread that is somewhere."""
    done.wait(60)


def test_the_signal_asks_for_the_stacks_of_all_threads(tmp_path: Path) -> None:
    """Also of those that wait."""
    done = threading.Event()
    thread = threading.Thread(target=rest_a_while, args=[done])
    with record(dir=str(tmp_path)) as recorded:
        thread.start()
        os.kill(os.getpid(), SIGNAL)
        (file,) = files(recorded.path)
        wait_for(lambda: file.read_text().count("most recent call first") >= 2)
        done.set()
        thread.join()
    text = file.read_text()
    assert "in rest_a_while" in text
    assert "in test_the_signal_asks" in text
    assert file.stat().st_mode & 0o777 == 0o600


def test_no_progress_for_long_writes_them_and_the_next_step_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has to notice, and no thread of ours waits for it."""
    monkeypatch.setattr(stacks, "AFTER_NS", 50_000_000)
    monkeypatch.setattr(stacks, "PATIENCE", 0)
    threads = threading.active_count()
    with record(dir=str(tmp_path)) as recorded:
        step.end(0)
        assert threading.active_count() == threads
        (file,) = files(recorded.path)
        wait_for(lambda: file.stat().st_size)
        sampler._now.due = 0
        step.end(0)
    assert "in wait_for" in file.read_text()
    (mark,) = recorded.named("stacks")
    assert (mark["args"], mark["step"]) == ({"file": file.name}, 2)


def test_patience_grows_with_the_longest_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is slow as a rule does not hang."""
    set_to: list[int] = []
    monkeypatch.setattr(stacks, "_set_timer", set_to.append)
    with record(dir=str(tmp_path)):
        step.end(0)
        stacks._watch.seen -= 100 * stacks.AFTER_NS
        sampler._now.due = 0
        step.end(0)
    assert set_to[0] == stacks.AFTER_NS
    assert set_to[1] >= 100 * stacks.PATIENCE * stacks.AFTER_NS


def test_a_file_that_stays_empty_goes(tmp_path: Path) -> None:
    """And the signal is nobody's again."""
    with record(dir=str(tmp_path)) as recorded:
        step.end(0)
        assert len(files(recorded.path)) == 1
    assert files(recorded.path) == []
    assert signal.getsignal(SIGNAL) == signal.SIG_DFL


def test_a_signal_that_the_program_uses_stays_its_own(tmp_path: Path) -> None:
    """There are no stacks on demand then."""
    seen: list[int] = []
    signal.signal(SIGNAL, lambda number, _frame: seen.append(number))
    try:
        with record(dir=str(tmp_path)) as recorded:
            step.end(0)
            assert files(recorded.path) == []
            os.kill(os.getpid(), SIGNAL)
            wait_for(lambda: seen)
    finally:
        signal.signal(SIGNAL, signal.SIG_DFL)


def test_a_descriptor_that_is_not_ours_any_more_is_not_written_to(tmp_path: Path) -> None:
    """A program may close all descriptors and open others."""
    theirs = tmp_path / "theirs"
    with record(dir=str(tmp_path / "runs")) as recorded:
        step.end(0)
        fd = os.open(theirs, os.O_RDWR | os.O_CREAT)
        os.dup2(fd, stacks._watch.fd)
        sampler._now.due = 0
        step.end(0)
        assert stacks._watch.fd == -1
        assert len(files(recorded.path)) == 1
    os.close(fd)
    assert theirs.read_bytes() == b""


def test_without_a_timer_there_are_stacks_on_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: set[str]
) -> None:
    """The kernel is asked once; that it refused is told once."""

    def refuse() -> None:
        raise OSError(11, "no timers left")

    monkeypatch.setattr(stacks, "_new_timer", refuse)
    before = guard.counts().get("sampling this process", 0)
    with record(dir=str(tmp_path)) as recorded:
        for _ in range(3):
            sampler._now.due = 0
            step.end(0)
        os.kill(os.getpid(), SIGNAL)
        wait_for(lambda: files(recorded.path)[0].stat().st_size)
    assert guard.counts()["sampling this process"] == before + 1
    assert len(recorded.named("rss")) == 2
    expected.add("sampling this process")
