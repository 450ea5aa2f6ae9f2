"""`sonde dump`: the request, who answers it, and what is said of those who do not."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("torch")

import sonde
from sonde.blackbox.box import check_requests, trigger
from sonde.cli import main
from sonde.store.folder import boot_id, host
from sonde.store.probe import stacks_signal
from sonde.testing import BuiltProcess, BuiltRecord, Recorded, build_run, record


def dump(run: Path, *args: str) -> Result:
    """`sonde dump` with this run."""
    return CliRunner().invoke(main, ["dump", str(run), *args])


def dump_while(run: Path, coming_by: Callable[[], None], *args: str) -> Result:
    """The same in another thread, while this one comes by again and again."""
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(dump(run, *args)))
    thread.start()
    while thread.is_alive():
        coming_by()
        thread.join(0.05)
    return results[0]


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    """A run that is over, and had a black box."""
    with record(dir=str(tmp_path), blackbox=1) as done:
        trigger("demand")
    return done


def test_a_process_that_comes_by_answers_with_its_folder(tmp_path: Path) -> None:
    """Each request is answered anew, and taken away in the end."""
    with record(dir=str(tmp_path), blackbox=1) as running:
        trigger("demand")
        first, second = (dump_while(running.path, check_requests) for _ in range(2))
        assert not (running.path / "dump").exists()
    rest = f"demand-{host()}-{os.getpid()}"
    assert first.exit_code == second.exit_code == 0
    assert first.output.splitlines() == [
        f"pid {os.getpid()}: {running.path}/blackbox/002-{rest}",
        f"Show it: sonde blackbox {running.path.name}",
    ]
    assert f"003-{rest}" in second.output


def test_a_request_that_was_left_there_is_renewed(tmp_path: Path) -> None:
    """`touch RUN/dump` and the command do not get in each other's way."""
    with record(dir=str(tmp_path), blackbox=1) as running:
        (running.path / "dump").touch()
        check_requests()
        assert dump_while(running.path, check_requests).exit_code == 0
    assert len(list((running.path / "blackbox").iterdir())) == 2


@pytest.mark.skipif(stacks_signal() is None, reason="there are no real-time signals here")
def test_of_one_that_does_not_come_by_the_stacks_are_written(tmp_path: Path) -> None:
    """The message says where; the exit code says that it did not work."""
    with record(dir=str(tmp_path), blackbox=1) as running:
        trigger("demand")
        result = dump(running.path, "--wait", "0.2")
        assert not (running.path / "dump").exists()
    assert result.exit_code == 1
    assert f"pid {os.getpid()}: no response within 200 ms. Its stacks: " in result.output
    (stacks,) = running.path.glob("stacks-*.txt")
    assert str(stacks) in result.output
    assert "test_dump.py" in stacks.read_text()


def test_nobody_is_sent_a_signal_that_would_kill(tmp_path: Path) -> None:
    """A process that does not wait for the signal is left alone, and that is said."""
    with record(dir=str(tmp_path), blackbox=1, mode="manual") as running:
        trigger("demand")
        result = dump(running.path, "--wait", "0.1")
    assert "it cannot write stacks" in result.output


def test_a_run_that_is_over_is_told_so(recorded: Recorded) -> None:
    """Nothing is left behind in it."""
    result = dump(recorded.path)
    assert result.exit_code == 1
    assert f"{recorded.path.name} has ended" in result.output
    assert f"sonde blackbox {recorded.path.name}" in result.output
    assert not (recorded.path / "dump").exists()


def test_a_run_that_has_only_begun_is_not_over(tmp_path: Path) -> None:
    """`sonde run` is there, and the program has not come as far as to record."""
    facts = {"end": None, "boot_id": boot_id(), "pid": os.getpid(), "role": "launcher"}
    run = build_run(tmp_path / "run1", [BuiltProcess([BuiltRecord(dur=1)], host=host(), process=facts)])
    result = dump(run)
    assert result.exit_code == 1
    assert "run1 has no training process right now" in result.output


def test_a_run_without_a_black_box_is_told_how_to_get_one(tmp_path: Path) -> None:
    """Waiting would be in vain."""
    with record(dir=str(tmp_path)) as running:
        sonde.mark("x")
        result = dump(running.path)
    assert result.exit_code == 1
    assert "sonde run --blackbox" in result.output


def test_a_run_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """With one message."""
    result = CliRunner().invoke(main, ["dump", "nix", "--dir", str(tmp_path)])
    assert result.exit_code == 1
    assert "Traceback" not in result.output
