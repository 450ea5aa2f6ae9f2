"""The black box: which batches it keeps, why it is written, and what it never does."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from tests.flow.boxes import Rows, dumps, folders, loader, only, train

import sonde
from sonde.blackbox.batches import DeliveredBatch
from sonde.blackbox.box import MOST_DUMPS, _box, check_requests, trigger
from sonde.errors import SettingError
from sonde.events.recorder import at_failure, report_failure
from sonde.flow import blackbox as switch
from sonde.testing import record

MODULE = sys.modules["sonde.blackbox.box"]  # its name is that of the function in it


@pytest.fixture(autouse=True)
def off_in_the_end(expected: set[str]) -> Iterator[None]:
    """Nothing of ours fails that is not expected to, and the black box is off."""
    yield
    assert _box.ring is None
    assert not _box.leave


class Boom(Exception):
    """What these tests raise."""


# ── what is kept ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_last_batches_are_kept_with_indices_ids_and_step(tmp_path: Path) -> None:
    """Of many batches the last two, in their order."""
    with record(dir=str(tmp_path), blackbox=2) as recorded:
        train(loader(), most=6)
        trigger("demand")
    first, last = only(recorded)["batches"]
    assert [first["number"], last["number"]] == [4, 5]
    assert last["indices"] == [20, 21, 22, 23]
    assert last["ids"] == [f"row {index}" for index in range(20, 24)]
    assert (last["step"], last["size"], last["loader"], last["worker"]) == (5, 4, first["loader"], None)


def newest() -> DeliveredBatch | None:
    """The batch that was delivered last; None: none, or there is no black box."""
    return None if _box.ring is None else _box.ring.newest()


def test_the_newest_batch_is_the_one_that_the_program_has(tmp_path: Path) -> None:
    """It is the same object, not a copy; without a black box there is none."""
    with record(dir=str(tmp_path), blackbox=1):
        assert newest() is None
        for batch in loader():
            kept = newest()
            assert kept is not None
            assert kept.data is batch
        assert kept is not None
        assert kept.indices == (36, 37, 38, 39)
        assert kept.ids == ["row 36", "row 37", "row 38", "row 39"]
    assert newest() is None


def test_no_more_batches_are_held_than_asked_for(tmp_path: Path) -> None:
    """What is not among the last ones is free."""
    with record(dir=str(tmp_path), blackbox=2):
        for _batch in loader():
            pass
        assert _box.ring is not None
        assert len(_box.ring.kept) == 2
        sonde.flow.blackbox(1)
        assert [kept.batch.number for kept in _box.ring.kept if kept.batch] == [9]
        sonde.flow.blackbox(4)
        assert len(_box.ring.kept) == 1


def test_indices_are_those_of_the_innermost_dataset(tmp_path: Path) -> None:
    """Those of a subset say nothing."""
    subset = torch.utils.data.Subset(Rows(), [31, 5, 17, 8])
    with record(dir=str(tmp_path), blackbox=1) as recorded:
        train(loader(subset))
        trigger("demand")
    assert only(recorded)["batches"][0]["indices"] == [31, 5, 17, 8]


def test_a_batch_that_the_program_takes_apart_stays_whole(tmp_path: Path) -> None:
    """`batch.pop("y")` takes nothing from the black box."""
    with record(dir=str(tmp_path), blackbox=1) as recorded:
        for batch in loader():
            batch.pop("y")
        trigger("demand")
    values = only(recorded)["batches"][0]["values"]
    assert [value["path"] for value in values] == ["x", "y", "id"]
    assert [value["file"] for value in values] == ["batch-0/0.npy", "batch-0/1.npy", None]


def test_a_buffer_that_was_changed_since_is_told(tmp_path: Path) -> None:
    """By torch, or behind its back; others are as they were."""
    with record(dir=str(tmp_path), blackbox=3) as recorded:
        for number, batch in enumerate(loader()):
            if number == 7:
                batch["x"].mul_(1)
            if number == 8:
                batch["x"].numpy()[0, 0] += 1
        trigger("demand")
    assert [batch["changed"] for batch in only(recorded)["batches"]] == [True, True, False]


def test_what_is_too_large_is_described_only(tmp_path: Path) -> None:
    """And the oldest go when those that are held are together too large."""
    with record(dir=str(tmp_path), blackbox=3, values_limit=20) as recorded:  # together 160 bytes; a batch has 80
        train(loader(), most=3)
        trigger("demand")
        train(torch.utils.data.DataLoader(Rows(), batch_size=20), most=1)
        trigger("demand")
    first, second = dumps(recorded)
    assert [batch["kept"] for batch in first["batches"]] == ["gone", "full", "full"]
    assert [batch["kept"] for batch in second["batches"]] == ["full", "full", "too large"]
    assert second["batches"][-1]["values"][0]["shape"] == [20, 4]
    assert second["batches"][-1]["values"][0]["min"] is None
    assert len(second["batches"][-1]["indices"]) == 20
    assert any("too large" in sentence for sentence in second["left_out"])


@pytest.mark.parametrize("values", ["summary", "off"])
def test_the_setting_values_is_respected(tmp_path: Path, values: str) -> None:
    """Ids and summaries, or types and shapes, and no arrays."""
    with record(dir=str(tmp_path), blackbox=1, values=values) as recorded:
        train(loader(), most=2)
        trigger("demand")
    (folder,) = folders(recorded)
    assert sorted(path.name for path in folder.iterdir()) == ["dump.json", "stacks.txt"]
    (batch,) = only(recorded)["batches"]
    assert batch["kept"] == values
    assert batch["ids"] == ["row 4", "row 5", "row 6", "row 7"]
    value = batch["values"][0]
    assert (value["shape"], value["file"]) == ([4, 4], None)
    assert value["max"] == (pytest.approx(0.07) if values == "summary" else None)
    assert (batch["digest"] is None) == (values == "off")


def test_without_values_the_message_of_an_exception_is_nowhere(tmp_path: Path) -> None:
    """It may quote data: its type and its place are kept."""
    secret = "patient 4711"
    with record(dir=str(tmp_path), blackbox=1, values="off") as recorded:
        with pytest.raises(KeyError) as caught:
            dict[str, int]()[secret]
        trigger("exception", error=caught.value)
    raised = only(recorded)["exception"]
    assert (raised["type"], raised["message"]) == ("KeyError", "")
    assert "test_box.py" in raised["traceback"][-1]
    (folder,) = folders(recorded)
    assert not any(secret in path.read_text() for path in folder.iterdir())


def test_excluded_fields_are_nowhere(tmp_path: Path) -> None:
    """Neither their values nor their ids."""
    with record(dir=str(tmp_path), blackbox=1, exclude="y,id") as recorded:
        train(loader(), most=2)
        trigger("demand")
    (batch,) = only(recorded)["batches"]
    assert [value["path"] for value in batch["values"]] == ["x"]
    assert batch["ids"] is None


# ── why it is written ────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_exception_writes_it_once(tmp_path: Path) -> None:
    """Through the block of the recording, with its place; the exception is the program's own."""
    error = Boom("nobody catches this")
    recorded = None

    def program() -> None:
        nonlocal recorded
        with record(dir=str(tmp_path), blackbox=2) as recorded:
            train(loader(), most=3)
            report_failure(error)
            raise error

    with pytest.raises(Boom) as raised:
        program()
    assert raised.value is error
    assert recorded is not None
    dump = only(recorded)
    assert dump["reason"] == "exception"
    assert (dump["exception"]["type"], dump["exception"]["message"]) == ("Boom", "nobody catches this")
    assert len(dump["batches"]) == 2
    (mark,) = recorded.named("dump")
    assert mark["args"] == {"folder": folders(recorded)[0].name, "reason": "exception"}


def test_the_traceback_names_the_place(tmp_path: Path) -> None:
    """File, line, function and code."""

    def fail() -> None:
        raise Boom("here")  # the place

    with record(dir=str(tmp_path), blackbox=1) as recorded:
        try:
            fail()
        except Boom as error:
            report_failure(error)
    frame = only(recorded)["exception"]["traceback"][-1]
    assert "test_box.py:" in frame
    assert frame.endswith('in fail: raise Boom("here")  # the place')


def test_a_worker_that_dies_meanwhile_costs_no_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch raises an error for it wherever the program is; the handler is there again afterwards."""

    def raises(_number: int, _frame: Any) -> None:
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed.")

    def dies(*given: Any) -> Any:
        signal.raise_signal(signal.SIGCHLD)
        return write(*given)

    write = MODULE.dump.write
    before = signal.signal(signal.SIGCHLD, raises)
    try:
        with record(dir=str(tmp_path), blackbox=1) as recorded:
            monkeypatch.setattr(MODULE.dump, "write", dies)
            report_failure(Boom("mine"))
            assert signal.getsignal(signal.SIGCHLD) is raises
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert only(recorded)["exception"]["message"] == "mine"


def test_an_exception_behind_another_is_written_once(tmp_path: Path) -> None:
    """Who wraps an exception that was written gets no second account of it."""
    with record(dir=str(tmp_path), blackbox=1) as recorded:
        inner, outer = Boom("inner"), Boom("outer")
        outer.__cause__ = inner
        trigger("memory", error=inner)
        report_failure(outer)
    assert only(recorded)["reason"] == "memory"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_who_asks_for_the_end_gets_no_dump(tmp_path: Path, error: BaseException) -> None:
    """Ctrl-C and sys.exit() are no failures."""
    with record(dir=str(tmp_path), blackbox=1) as recorded:
        train(loader(), most=2)
        report_failure(error)
    assert folders(recorded) == []


def test_an_exception_that_ends_a_thread_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the hook of the program is called as ever."""
    seen: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", seen.append)

    def work() -> None:
        raise Boom("in a thread")

    with record(dir=str(tmp_path), blackbox=1) as recorded:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert only(recorded)["exception"]["message"] == "in a thread"
    assert [args.exc_type for args in seen] == [Boom]
    assert threading.excepthook == seen.append


def test_an_item_that_raises_is_named(tmp_path: Path) -> None:
    """Its index, its place, its batch; here the loader has no workers."""
    with pytest.raises(ValueError, match="item 22"), record(dir=str(tmp_path), blackbox=2) as recorded:
        train(loader(torch.utils.data.Subset(Rows(bad=22), list(range(39, -1, -1)))))
    dump = only(recorded)
    assert dump["reason"] == "exception"
    item = dump["exception"]["item"]
    assert (item["index"], item["position"], item["worker"]) == (22, 1, None)
    assert item["batch"] == dump["batches"][-1]["key"] + 1


class Stream(torch.utils.data.IterableDataset[Any]):
    """Numbers, until it fails."""

    def __iter__(self) -> Iterator[Any]:
        yield from torch.arange(10)
        raise Boom("the stream broke")


@pytest.mark.parametrize(("data", "position"), [(Stream(), 2), (list(range(8)), None)])
def test_what_is_not_known_of_a_failure_is_null(tmp_path: Path, data: Any, position: int | None) -> None:
    """An iterable dataset has places and ordinals; where the collation fails, no item is to blame."""

    def collate(items: list[Any]) -> Any:
        if isinstance(items[0], int):
            raise Boom("collation")
        return torch.stack(items)

    with pytest.raises(Boom), record(dir=str(tmp_path), blackbox=2) as recorded:
        for _batch in loader(data, collate_fn=collate):
            pass
    item = only(recorded)["exception"]["item"]
    assert (item and item["position"]) == position
    assert (item and item["index"]) == (None if position is None else 10)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("numpy"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes."),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    ],
)
def test_a_lack_of_memory_is_the_reason(tmp_path: Path, error: Exception) -> None:
    """Whoever of Python and the allocators of torch says so, also behind another exception."""
    outer = Boom("step failed")
    outer.__context__ = error
    with record(dir=str(tmp_path), blackbox=1) as recorded:
        report_failure(outer)
    assert only(recorded)["reason"] == "memory"


def test_a_loss_that_is_not_finite_writes_it_once(tmp_path: Path) -> None:
    """With the batch that led to it; training goes on, and later losses are not written."""
    with record(dir=str(tmp_path), blackbox=2) as recorded:
        train(loader(Rows(odd=21)))
    dump = only(recorded)
    assert dump["reason"] == "nonfinite"
    assert dump["batches"][-1]["indices"] == [20, 21, 22, 23]
    assert dump["batches"][-1]["values"][0]["nonfinite"] == 1


def test_a_last_loss_that_is_not_finite_is_written_too(tmp_path: Path) -> None:
    """Also if the recording ends right after it."""
    with record(dir=str(tmp_path), blackbox=2) as recorded:
        train(loader(Rows(odd=38)))
    assert only(recorded)["reason"] == "nonfinite"


def test_who_knows_more_of_a_loss_writes_it(tmp_path: Path) -> None:
    """A certificate that comes in the same step is written, and nothing else."""
    with record(dir=str(tmp_path), blackbox=2) as recorded:
        net, certificate = torch.nn.Linear(4, 1), {"where": "forward", "layer": "x"}
        for batch in loader(Rows(odd=1)):
            net(batch["x"]).sum().backward()
            if newest() is not None and not folders(recorded):
                trigger("nonfinite", certificate=certificate)
    assert only(recorded)["nonfinite"] == certificate


def test_a_loss_counts_in_steps_that_are_not_recorded_too(tmp_path: Path) -> None:
    """The setting `steps` chooses what is recorded, not what goes wrong."""
    with record(dir=str(tmp_path), blackbox=1, steps="0:2") as recorded:
        train(loader(Rows(odd=21)))
    assert only(recorded)["step"] in (5, 6)
    assert {event["step"] for event in recorded.named("loss")} == {0, 1}


def test_a_file_in_the_run_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each time that it is touched; one that was there before is not meant."""
    monkeypatch.setattr(MODULE, "CHECK_NS", 0)
    with record(dir=str(tmp_path)) as recorded:
        request = recorded.path / "dump"
        request.touch()
        sonde.flow.blackbox(1)
        train(loader(), most=4)
        assert folders(recorded) == []
        os.utime(request, ns=(1, 1))
        train(loader(), most=4)
        os.utime(request, ns=(2, 2))
        train(loader(), most=4)
    assert [dump["reason"] for dump in dumps(recorded)] == ["demand", "demand"]


def test_a_program_without_loaders_writes_all_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exception, the stacks and the open spans; and it is asked for at the ends of steps."""
    monkeypatch.setattr(MODULE, "CHECK_NS", 0)
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with record(dir=str(tmp_path), blackbox=1) as recorded:
        (recorded.path / "dump").touch()
        with sonde.span("my epoch"):
            net(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    dump = only(recorded)
    assert dump["batches"] == []
    assert "my epoch" in [span["name"] for span in dump["open_spans"]]
    assert "test_box.py" in (folders(recorded)[0] / "stacks.txt").read_text()


# ── limits, and on and off ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_process_writes_so_many_and_no_more(tmp_path: Path) -> None:
    """The last one says that it is the last."""
    with record(dir=str(tmp_path), blackbox=1) as recorded:
        names = [trigger("demand") for _ in range(MOST_DUMPS + 2)]
    assert names[-2:] == [None, None]
    assert len(folders(recorded)) == MOST_DUMPS
    *others, last = dumps(recorded)
    assert "last of 20 dumps" in last["left_out"][0]
    assert others[-1]["left_out"] == []


def test_a_dump_that_fails_hides_nothing(tmp_path: Path, expected: set[str]) -> None:
    """Where the folder cannot be made, the exception is the program's own, and the failure is counted."""
    expected.add("writing the black box")
    told: list[BaseException] = []

    def program() -> None:
        with record(dir=str(tmp_path), blackbox=1) as recorded:
            (recorded.path / "blackbox").write_text("something stands here")
            raise Boom("mine")

    leave = at_failure(told.append)
    with pytest.raises(Boom) as raised:
        program()
    leave()
    assert told == [raised.value]


def test_a_trigger_inside_of_a_dump_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong while it is written starts no second one."""
    with record(dir=str(tmp_path), blackbox=1) as recorded:
        inner: list[str | None] = []
        monkeypatch.setattr("sonde.blackbox.dump._sync", lambda _path: inner.append(trigger("exception")))
        trigger("demand")
    assert set(inner) == {None}
    assert only(recorded)["reason"] == "demand"


def test_without_a_recording_one_message_tells_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    """It is no error, and told once."""
    _box.warned = False
    with caplog.at_level(logging.WARNING, "sonde"):
        sonde.flow.blackbox()
        sonde.flow.blackbox(2)
    (message,) = [entry.message for entry in caplog.records]
    assert "sonde.init()" in message
    assert "sonde run --blackbox" in message


@pytest.mark.parametrize("wrong", [-1, 65, "many", 2.5, True, None])
def test_a_wrong_number_is_refused(tmp_path: Path, wrong: Any) -> None:
    """The message says what is allowed."""
    with record(dir=str(tmp_path)), pytest.raises(SettingError, match="from 0 to 64"):
        switch(wrong)


def test_zero_switches_it_off(tmp_path: Path) -> None:
    """Nothing is kept or written from then on."""
    with record(dir=str(tmp_path), blackbox=2) as recorded:
        train(loader(), most=2)
        sonde.flow.blackbox(0)
        train(loader(Rows(odd=1)))
        check_requests()
        assert trigger("demand") is None
    assert folders(recorded) == []


def test_a_forked_child_has_nothing_of_its_parent(tmp_path: Path) -> None:
    """Neither batches nor what was written."""
    with record(dir=str(tmp_path), blackbox=2):
        train(loader(), most=2)
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            os.write(write, str((newest(), _box.dumps)).encode())
            os._exit(0)
        os.waitpid(pid, 0)
        assert os.read(read, 100) == b"(None, 0)"
        os.close(read)
        os.close(write)


def test_results_are_the_same_to_the_last_bit(tmp_path: Path) -> None:
    """Training with and without it gives the same weights."""
    with record(dir=str(tmp_path)):
        plain = train(loader())
    with record(dir=str(tmp_path), blackbox=3):
        watched = train(loader())
    assert torch.equal(plain.weight, watched.weight)
    assert torch.equal(plain.bias, watched.bias)
