"""Programs started from Python, as `sonde watch` does it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sonde
from sonde import launch
from sonde.errors import CommandRefused, SettingError
from sonde.events import core

SECONDS = 120  # for anything to happen, on a busy machine


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Both ends of a pipe; the writing end is closed by the test."""
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_output_goes_where_it_is_wanted(tmp_path: Path, pipe: tuple[int, int]) -> None:
    """Standard output and error come through the descriptor, there is no input, and the group is the program's own."""
    code = (
        "import os, sys; print('out', flush=True); print('err', file=sys.stderr); "
        "print(sys.stdin.read() == '', os.getpgrp() == os.getpid())"
    )
    launched = launch.start(python(code), launch.Options(dir=str(tmp_path)), output=pipe[1])
    os.close(pipe[1])
    assert launched.wait(SECONDS) == 0
    assert os.read(pipe[0], 4096) == b"out\nerr\nTrue True\n"


def test_the_run_is_known_at_once_and_readable_while_the_program_runs(tmp_path: Path, pipe: tuple[int, int]) -> None:
    """Who watches it need not wait."""
    launched = launch.start(
        python("import time; time.sleep(60)"), launch.Options(dir=str(tmp_path), name="mine"), output=pipe[1]
    )
    os.close(pipe[1])
    assert launched.run is not None
    with sonde.open_run(launched.run) as run:
        assert run.sql("select key from events where name = 'start'").fetchall() == [(launched.pid,)]
    assert launched.poll() is None
    assert launched.wait(0.05) is None
    launched.signal(signal.SIGTERM)
    assert launched.wait(SECONDS) == 143
    launched.signal(signal.SIGTERM)  # harmless: it is not sent to whoever has the number now
    assert launched.poll() == 143
    assert not core.info()["recording"]


def test_a_signal_reaches_all_that_a_shell_has_started(tmp_path: Path, pipe: tuple[int, int]) -> None:
    """A program with an output of its own is signalled as a terminal does it: the whole group."""
    inner = "import signal, sys; signal.signal(2, lambda *_: sys.exit(5)); print(flush=True); signal.pause()"
    shell = ["bash", "-c", f"{sys.executable} -c '{inner}'; echo code $?"]
    launched = launch.start(shell, launch.Options(dir=str(tmp_path)), output=pipe[1])
    os.close(pipe[1])
    assert os.read(pipe[0], 1) == b"\n"
    launched.signal(signal.SIGINT)
    assert launched.wait(SECONDS) is not None
    assert os.read(pipe[0], 4096) in (b"code 5\n", b"")  # a shell may die of it too, as it does in a terminal


def test_who_detaches_lets_the_program_go_on(tmp_path: Path, pipe: tuple[int, int]) -> None:
    """The launcher records no more; the program does not notice."""
    launched = launch.start(python("input()"), launch.Options(dir=str(tmp_path)), output=pipe[1])
    launched.detach()
    assert not core.info()["recording"]
    assert launched.wait(SECONDS) == 1  # there is no input
    os.close(pipe[1])


def test_a_program_that_cannot_be_started_leaves_no_run(tmp_path: Path) -> None:
    """The folder is taken back."""
    with pytest.raises(CommandRefused) as caught:
        launch.start(["/no/such/program"], launch.Options(dir=str(tmp_path)))
    assert caught.value.exit_code == 127
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_option_raises_before_anything_is_made(tmp_path: Path) -> None:
    """As init() does it."""
    with pytest.raises(SettingError, match="steps"):
        launch.start(python("pass"), launch.Options(dir=str(tmp_path), steps="9:3"))
    assert list(tmp_path.iterdir()) == []


def test_the_command_of_the_run_is_that_of_the_program(tmp_path: Path) -> None:
    """Not that of the launcher; secrets are taken out."""
    launched = launch.start([*python("pass"), "--password", "hidden"], launch.Options(dir=str(tmp_path)))
    assert launched.wait(SECONDS) == 0
    with sonde.open_run(str(launched.run)) as run:
        text = str(run.sql("select args from events where name = 'start'").fetchall())
    assert "--password" in text
    assert "hidden" not in text
    assert "hidden" not in (Path(str(launched.run)) / "run.json").read_text()
