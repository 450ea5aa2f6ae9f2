"""How children ended is noted by the process that started them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from sonde import testing

METHODS = pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])


def ended(recorded: testing.Recorded) -> dict[int, dict[str, Any]]:
    """What was noted of each child."""
    return {event["key"]: event["args"] for event in recorded.events if event["cat"] == "process"}


def test_exit_code_of_a_python_that_was_started_is_noted_once() -> None:
    """However often it is waited for."""
    with testing.record() as recorded:
        child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(6)"])
        assert (child.wait(), child.poll(), child.wait()) == (6, 6, 6)
    assert ended(recorded) == {child.pid: {"code": 6, "signal": None}}
    assert len(recorded.named("exit")) == 1


def test_signal_that_killed_a_child_is_noted() -> None:
    """Instead of an exit code."""
    with testing.record() as recorded:
        child = subprocess.Popen([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
        child.wait()
    assert ended(recorded) == {child.pid: {"code": None, "signal": 9}}


def test_other_programs_are_of_no_interest() -> None:
    """What a program asks of git or of a shell would only fill the run."""
    with testing.record() as recorded:
        subprocess.run(["sh", "-c", "exit 3"], check=False)
        subprocess.run("exit 3", shell=True, check=False)
    assert recorded.events == []


def test_another_program_that_records_is_of_interest() -> None:
    """Whatever it is called: it has a folder in the run."""
    with testing.record() as recorded:
        code = f"exec {sys.executable} -c 'import sonde; sonde.mark(\"in\")'"
        child = subprocess.Popen(["sh", "-c", code])
        child.wait()
    assert ended(recorded) == {child.pid: {"code": 0, "signal": None}}


@METHODS
def test_children_of_multiprocessing_are_noted(method: str) -> None:
    """Whichever way they start."""
    with testing.record() as recorded:
        child = multiprocessing.get_context(method).Process(target=os._exit, args=(4,))  # type: ignore[attr-defined]
        child.start()
        child.join()
    assert ended(recorded) == {child.pid: {"code": 4, "signal": None}}


@METHODS
def test_a_child_that_the_program_ends_itself_is_noted_so(method: str) -> None:
    """Somebody else who ends it is not its parent."""
    context = multiprocessing.get_context(method)
    with testing.record() as recorded:
        mine, other = (context.Process(target=time.sleep, args=(60,)) for _ in range(2))  # type: ignore[attr-defined]
        mine.start()
        other.start()
        mine.terminate()
        os.kill(other.pid, signal.SIGTERM)
        mine.join()
        other.join()
    told = ended(recorded)
    assert told[mine.pid] == {"code": None, "signal": 15, "by": "parent"}
    assert told[other.pid] == {"code": None, "signal": 15}


def test_a_program_that_was_started_and_ended_is_noted_so() -> None:
    """`Popen.terminate` is the program's own doing; `kill` is told as it ever was."""
    with testing.record() as recorded:
        asked, killed = (subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) for _ in range(2))
        asked.terminate()
        killed.kill()
        asked.wait()
        killed.wait()
    assert ended(recorded) == {
        asked.pid: {"code": None, "signal": 15, "by": "parent"},
        killed.pid: {"code": None, "signal": 9},
    }


def test_nothing_stays_behind_when_the_recording_ends() -> None:
    """The functions are the library's own again."""
    before = subprocess.Popen._handle_exitstatus  # type: ignore[attr-defined]
    with testing.record():
        assert subprocess.Popen._handle_exitstatus is not before  # type: ignore[attr-defined]
    assert subprocess.Popen._handle_exitstatus is before  # type: ignore[attr-defined]
