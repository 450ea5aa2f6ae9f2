"""trace(): the block, what it refuses, what it leaves behind, and what becomes of exceptions."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader, Dataset

import sonde
from sonde import flow
from sonde.capture import tape
from sonde.errors import SettingError

pytestmark = pytest.mark.usefixtures("nothing_left")


@flow.trace_model_func
def double(x: Any) -> Any:
    """A traced function."""
    return x * 2


@flow.trace_model_func
def fail(x: Any) -> Any:
    """A traced function that raises."""
    raise RuntimeError("no")


def interrupted(x: Any) -> None:
    """A user who has had enough."""
    raise KeyboardInterrupt


@pytest.mark.parametrize("value", [0, -1, True, False, 2.5, "4", "x", [], np.bool_(True), np.float32(2)])
@pytest.mark.parametrize("name", ["items", "batches"])
def test_a_count_that_is_none_is_refused_before_anything_runs(name: str, value: Any) -> None:
    """The message names the argument and the value."""
    with pytest.raises(SettingError, match=name):
        flow.trace(**{name: value})


@pytest.mark.parametrize("value", [range(0), range(-1, 3), 3, "1", [True], [1.5], [-1], []])
def test_steps_that_are_none_are_refused(value: Any) -> None:
    """Before anything runs."""
    with pytest.raises(SettingError, match="steps"):
        flow.trace(steps=value)


def test_only_one_way_at_a_time() -> None:
    """Limits and observations do not mix."""
    with pytest.raises(SettingError, match="items and batches"):
        flow.trace(items=1, batches=1)


def test_numpy_numbers_are_numbers() -> None:
    """A count often comes out of an array."""
    with flow.trace(items=np.int64(3)) as trace:  # type: ignore[arg-type]
        pass
    assert trace.items == 3


@pytest.mark.parametrize("setting", [{"values": "some"}, {"values_limit": "much"}, {"exclude": 3}])
def test_wrong_settings_are_refused(setting: dict[str, Any]) -> None:
    """As everywhere."""
    with pytest.raises(SettingError, match=next(iter(setting))):
        flow.trace(**setting)


def test_two_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    """That it starts, and how many items."""
    with caplog.at_level(logging.WARNING, "sonde.flow"), flow.trace(items=2):
        pass
    assert [record.getMessage() for record in caplog.records] == [
        "Starting Trace",
        "Trace mode enabled, will only run a single batch of length 2",
    ]


def test_a_limit_without_a_loader_says_that_it_had_no_effect() -> None:
    """A NumPy pipeline has no loader to limit."""
    with flow.trace(items=2) as trace:
        double(1)
    assert "no torch DataLoader" in trace.notes[0]
    assert len(trace.evaluation) == 1


def test_get_trace_and_reset_trace() -> None:
    """The result that is being filled; emptied when asked."""
    assert flow.get_trace() is None
    flow.reset_trace()
    with flow.trace() as trace:
        double(1)
        assert flow.get_trace() is trace
        flow.reset_trace()
        double(2)
    assert flow.get_trace() is None
    assert [call.params for call in trace.calls()] == [{"x": 2}]


def test_last_is_the_result_that_was_finished_last() -> None:
    """Also without a name for it."""
    with flow.trace() as trace:
        double(1)
    assert flow.last() is trace


def test_of_nested_traces_the_inner_one_records_and_the_outer_one_goes_on() -> None:
    """Each call is in one of them."""
    with flow.trace() as outer:
        double(1)
        with flow.trace() as inner:
            double(2)
        double(3)
    assert [call.params["x"] for call in outer.calls()] == [1, 3]
    assert [call.params["x"] for call in inner.calls()] == [2]


def test_traces_can_be_repeated() -> None:
    """Each one starts empty, and sees each call once."""
    for _ in range(3):
        with flow.trace() as trace:
            double(1)
        assert len(trace.calls()) == 1


def test_a_trace_object_is_good_for_one_block() -> None:
    """A second block would mix two runs."""
    tracing = flow.trace()
    with tracing:
        pass
    with pytest.raises(SettingError, match="already"), tracing:
        pass


def test_an_exception_carries_the_trace(tmp_path: Path) -> None:
    """On the exception, in a note, by last(), and on disk."""
    with pytest.raises(RuntimeError, match="no") as caught, flow.trace() as trace:
        fail(double(1))
    error: Any = caught.value
    assert error.sonde_trace is trace
    assert flow.last() is trace
    (note,) = error.__notes__
    path = note.rpartition("saved in ")[2]
    saved = flow.load(path)
    assert [call.disp_name for call in saved.calls()] == ["double", "fail"]
    assert saved.calls()[1].about.error == "RuntimeError"
    assert os.stat(path).st_mode & 0o077 == 0


def test_keyboard_interrupt_undoes_everything_and_keeps_the_trace() -> None:
    """The fixture looks for what is left."""
    with pytest.raises(KeyboardInterrupt) as caught, flow.trace() as trace:
        interrupted(double(1))
    assert caught.value.sonde_trace is trace  # type: ignore[attr-defined]


def test_a_trace_of_a_recorded_program_is_saved_in_the_run(tmp_path: Path) -> None:
    """In the folder for values of its process, also without an exception."""
    with sonde.init("traced", dir=tmp_path) as session:
        assert session.path is not None
        with flow.trace() as trace:
            double(1)
        with pytest.raises(RuntimeError) as caught, flow.trace():
            fail(1)
        files = sorted(session.path.glob("*/values/*.sonde"))
    assert len(files) == 2
    assert any(str(file) in caught.value.__notes__[0] for file in files)
    assert str(flow.load(files[0]).evaluation) == str(trace.evaluation)


def test_calls_of_all_threads_are_captured_with_the_thread() -> None:
    """A call in another thread has no parent in this one."""
    with flow.trace() as trace:
        thread = threading.Thread(target=double, args=(1,), name="helper")
        thread.start()
        thread.join()
        double(2)
    assert {call.about.thread for call in trace.calls()} == {"helper", "MainThread"}
    assert {call.about.parent for call in trace.calls()} == {None}


def test_a_trace_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not captured is counted and said."""
    monkeypatch.setattr(tape, "MAX_CALLS", 3)
    with flow.trace() as trace:
        for n in range(5):
            double(n)
    assert len(trace.calls()) == 3
    assert trace.notes == ["2 more calls were not captured: a trace holds at most 3."]


def test_copies_are_bounded_together() -> None:
    """Later values are described, but not copied."""
    with flow.trace(values_limit=800) as trace:
        for _ in range(40):
            double(np.zeros(100))
    first, last = trace.evaluation[0], trace.evaluation[-1]
    assert isinstance(first.params["x"], np.ndarray)
    assert not isinstance(last.params["x"], np.ndarray)
    assert last.about.inputs[0].note.digest == first.about.inputs[0].note.digest
    assert "not copied" in trace.notes[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_calls_in_a_forked_child_come_back() -> None:
    """With its process id."""
    with flow.trace() as trace:
        child = os.fork()
        if not child:
            double(1)
            os._exit(0)
        os.waitpid(child, 0)
        double(2)
        assert len(trace.evaluation) == 2  # also while it runs
    assert [call.about.pid for call in trace.calls()] == [child, os.getpid()]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_may_leave_the_block_of_its_parent() -> None:
    """The trace is its parent's."""
    with flow.trace() as trace:
        child = os.fork()
    if not child:
        os._exit(0 if flow.get_trace() is None and trace.calls() == [] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_wrong_setting_in_the_environment_is_told_and_counts_as_not_given(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A program is not stopped by its surroundings."""
    monkeypatch.setenv("SONDE_VALUES", "everything")
    with flow.trace() as trace:
        double(1)
    assert trace.evaluation[0].params == {"x": 1}
    assert "SONDE_VALUES" in caplog.text


def test_settings_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names with commas between them; no copies."""
    monkeypatch.setenv("SONDE_EXCLUDE", "password, x")
    monkeypatch.setenv("SONDE_VALUES", "summary")
    with flow.trace() as trace:
        double(np.ones(3))
    call = trace.evaluation[0]
    assert "<hidden>" in str(call)
    assert not isinstance(call.retval, np.ndarray)
    assert call.about.output is not None
    assert call.about.output.note.high == 2


@pytest.mark.parametrize("values", ["summary", "off"])
def test_no_text_of_the_data_is_in_a_trace_without_values(values: str, tmp_path: Path) -> None:
    """Neither as an argument nor as the id or the key of an item, which can be asked for all the same."""

    class Patients(Dataset[dict[str, Any]]):
        def __getitem__(self, index: str) -> dict[str, Any]:
            return {"object_id": f"S3CRET-{index}", "text": "S3CRET", "x": 1.0}

    names = ["S3CRET-a", "S3CRET-b"]
    with flow.trace(values=values) as trace:
        for batch in DataLoader(Patients(), batch_size=2, sampler=names):
            double(batch["text"])
    trace.save(tmp_path / "t.sonde")
    assert b"S3CRET" not in (tmp_path / "t.sonde").read_bytes()
    assert "S3CRET" not in str(trace)
    assert len(trace.item(index="S3CRET-b").dataset_getter) == len(trace.item(id="S3CRET-S3CRET-b").dataset_getter) > 0


def test_what_a_killed_trace_left_is_removed_by_a_later_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only that: the folders of processes that live, and what is not ours, stay."""
    monkeypatch.setenv("SONDE_SCRATCH", str(tmp_path))
    code = (
        "import os, signal, sonde\n"
        "f = sonde.flow.trace_model_func(lambda x: x)\n"
        "with sonde.flow.trace():\n"
        "    if not os.fork():\n"
        "        f('value')\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    (left,) = tmp_path.glob("sonde-*/flow-*")
    assert list(left.glob("calls-*.jsonl"))
    (left.parent / "flow-notes").mkdir()
    with flow.trace():
        with flow.trace():
            pass
        assert len(list(left.parent.glob("flow-*-*-*"))) == 1
    assert [path.name for path in left.parent.iterdir()] == ["flow-notes"]


def test_nothing_is_left_on_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The folder for other processes goes with the trace."""
    monkeypatch.setenv("SONDE_SCRATCH", str(tmp_path))
    with flow.trace():
        double(1)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert len(list(tmp_path.rglob("*"))) == 1


def test_a_folder_that_cannot_be_made_does_not_hurt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only other processes cannot be followed then."""
    code = (
        "import sonde, logging\n"
        "logging.disable()\n"
        "f = sonde.flow.trace_model_func(lambda x: x)\n"
        "with sonde.flow.trace() as trace: f(1)\n"
        "print(len(trace.calls()))\n"
    )
    environment = {**os.environ, "SONDE_SCRATCH": str(tmp_path / "missing" / "folder")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


def test_flow_loads_neither_numpy_nor_torch() -> None:
    """Nor does a trace of a program that has not imported them."""
    code = (
        "import sys, sonde\n"
        "f = sonde.flow.trace_model_func(lambda x: x)\n"
        "with sonde.flow.trace() as trace: f([1, 'a'])\n"
        "str(trace)\n"
        "print([name for name in ('numpy', 'torch', 'pandas') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
