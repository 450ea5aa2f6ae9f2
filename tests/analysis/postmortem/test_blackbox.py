"""The reader of the black box: what is there is read, what is hostile becomes a note, and the first birth is the one."""

from __future__ import annotations

import json
import math
import os
import pickle
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.analysis.boxes import batch, birth, certificate, raised, with_marks, write_dump

from sonde.analysis.postmortem.batches import last_batches, used
from sonde.analysis.postmortem.blackbox import BlackBox, black_box
from sonde.analysis.postmortem.dumps import dumps_of
from sonde.analysis.postmortem.stacks import threads_in
from sonde.analysis.run import open_run
from sonde.analysis.seal import seal
from sonde.store import probe
from sonde.store.certificate import read_certificate
from sonde.store.record import COUNTER
from sonde.testing import BuiltProcess, BuiltRecord, build_run, training_processes

IMAGES = np.zeros((4, 3, 16, 16), np.float32)
PLAIN = BuiltProcess([BuiltRecord(dur=1)])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return build_run(tmp_path / "run", [PLAIN])


def read(path: Path) -> BlackBox:
    with open_run(path) as opened:
        return black_box(opened)


# ── dumps ──


def test_a_dump_is_read_whole(run: Path) -> None:
    """Reason, exception with its item, batches with their arrays, spans, threads, what was left out."""
    write_dump(
        run, "worker", [batch(4, {"image": IMAGES}, loss="NaN", changed=True)], exception=raised(), left_out=["x"]
    )
    (dump,) = read(run).dumps
    assert (dump.reason, dump.pid, dump.step, dump.left_out, dump.notes) == ("worker", 1000, 12, ["x"], [])
    assert dump.raised is not None
    assert dump.raised.item is not None
    assert (dump.raised.type, dump.raised.item.index, dump.raised.item.worker) == ("ValueError", 77, 0)
    (kept,) = dump.batches
    assert (kept.number, kept.size, kept.changed, kept.kept) == (4, 4, True, "full")
    assert kept.loss != kept.loss
    assert kept.digest == 2**63 + 4
    assert [(one.name, one.for_ns) for one in dump.open_spans] == [("forward", 4_000_000)]
    assert [(one.current, one.frames[0]) for one in dump.threads] == [
        (False, "wait (threading.py:324)"),
        (True, "step (train.py:41)"),
    ]
    (value,) = kept.values
    assert dump.whole(value).shape == (4, 3, 16, 16)
    assert list(dump.rows(value, [1, 3, 9])) == [1, 3]


def test_a_run_without_a_box_has_none(run: Path) -> None:
    """And nothing is wrong with it."""
    assert read(run) == BlackBox([], [], [], 0, [], [])


def test_a_dump_that_was_not_finished_is_told_of_and_not_read(run: Path) -> None:
    """The process died while it wrote."""
    write_dump(run).rename(run / "blackbox" / ".unfinished-000-exception")
    box = read(run)
    assert box.dumps == []
    assert "1 unfinished" in box.notes[0]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'"x"', b"null", b"\xff\xfe", b"[" * 100_000, b'{"version": 1', b"9" * 5000],
    ids=["empty", "cut", "list", "text", "null", "bytes", "deep", "truncated", "digits"],
)
def test_a_damaged_file_becomes_a_note(run: Path, content: bytes) -> None:
    """And the other dumps are read."""
    (write_dump(run) / "dump.json").write_bytes(content)
    write_dump(run, "sigterm", number=1)
    box = read(run)
    assert [dump.reason for dump in box.dumps] == ["sigterm"]
    assert "000-exception" in box.notes[0]


def test_a_file_that_is_too_large_is_not_read(run: Path) -> None:
    """Whatever it says of itself: it takes no memory."""
    with (write_dump(run) / "dump.json").open("r+b") as file:
        file.truncate(1 << 34)
    box = read(run)
    assert box.dumps == []
    assert "over the maximum" in box.notes[0]


def test_links_are_not_followed(run: Path, tmp_path: Path) -> None:
    """Neither a folder, nor the file, nor a folder of arrays."""
    outside = write_dump(tmp_path / "elsewhere", batches=[batch(1, {"image": IMAGES})])
    (run / "blackbox").mkdir()
    (run / "blackbox" / "000-linked").symlink_to(outside)
    inside = run / "blackbox" / "001-exception"
    inside.mkdir()
    (inside / "dump.json").symlink_to(outside / "dump.json")
    box = read(run)
    assert box.dumps == []
    assert box.notes == ["001-exception: dump.json is a symbolic link"]


def test_a_box_that_is_a_link_is_not_read(run: Path, tmp_path: Path) -> None:
    """It may lead anywhere."""
    write_dump(tmp_path / "elsewhere")
    (run / "blackbox").symlink_to(tmp_path / "elsewhere" / "blackbox")
    assert read(run).notes == ["blackbox is a symbolic link and was not read"]


def test_a_pipe_in_place_of_a_file_keeps_nobody_waiting(run: Path) -> None:
    """It is refused at once."""
    folder = write_dump(run)
    (folder / "dump.json").unlink()
    os.mkfifo(folder / "dump.json")
    assert "not a regular file" in read(run).notes[0]


@pytest.mark.parametrize(
    "file", ["../../run.json", "/etc/passwd", "batch-0/../../x.npy", "batch-0/0.npy/..", "batch-0\\0.npy", "0.npy", ""]
)
def test_paths_out_of_the_dump_are_refused(run: Path, file: str) -> None:
    """A file of a dump is batch-<n>/<n>.npy."""
    described, arrays = batch(1, {"image": IMAGES})
    described["values"] = [{"path": "0", "shape": [4], "file": file}]
    write_dump(run, batches=[(described, arrays)])
    (dump,) = read(run).dumps
    with pytest.raises(ValueError, match="not a file of a dump"):
        dump.rows(dump.batches[0].values[0], [0])


def test_a_linked_folder_of_arrays_is_refused(run: Path, tmp_path: Path) -> None:
    """Its files are somebody else's."""
    folder = write_dump(run, batches=[batch(1, {"image": IMAGES})])
    (folder / "batch-0").rename(tmp_path / "away")
    (folder / "batch-0").symlink_to(tmp_path / "away")
    (dump,) = read(run).dumps
    with pytest.raises(ValueError, match="symbolic link"):
        dump.whole(dump.batches[0].values[0])


def test_a_missing_array_is_an_error_of_the_file(run: Path) -> None:
    """For whoever wants to draw it."""
    folder = write_dump(run, batches=[batch(1, {"image": IMAGES})])
    (folder / "batch-0" / "0.npy").unlink()
    (dump,) = read(run).dumps
    with pytest.raises(FileNotFoundError):
        dump.rows(dump.batches[0].values[0], [0])


def test_nothing_is_ever_unpickled(run: Path, tmp_path: Path) -> None:
    """An array of objects is refused before its content is looked at."""
    folder = write_dump(run, batches=[batch(1, {"image": IMAGES})])

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "owned",))

    np.save(folder / "batch-0" / "0.npy", np.array([Evil()] * 4, dtype=object), allow_pickle=True)
    (dump,) = read(run).dumps
    with pytest.raises(ValueError, match=", not numbers"):
        dump.whole(dump.batches[0].values[0])
    (folder / "batch-0" / "0.npy").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ValueError):
        dump.whole(dump.batches[0].values[0])
    assert not (tmp_path / "owned").exists()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = (
    *("version", "reason", "wall_ns", "monotonic_ns", "host", "pid", "rank", "worker", "role", "step", "epoch"),
    *("exception", "nonfinite", "batches", "open_spans", "stacks", "left_out"),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(KEYS), JSON, min_size=1))
def test_whatever_stands_in_a_dump_is_read(tmp_path_factory: pytest.TempPathFactory, fields: dict[str, Any]) -> None:
    """Any JSON in any field: a dump of what is right in it."""
    run = tmp_path_factory.mktemp("run")
    folder = run / "blackbox" / "000-x"
    folder.mkdir(parents=True)
    (folder / "dump.json").write_text(json.dumps(fields))
    assert len(dumps_of(run, [])) == 1


INNER = (*certificate(), "key", "indices", "ids", "values", "loss", "digest", "path", "file", "position", "index")


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(INNER), JSON))
def test_whatever_stands_in_a_certificate_is_read(fields: dict[str, Any]) -> None:
    """A certificate, or none."""
    found = read_certificate({"where": "forward"} | fields)
    assert found is None or found.where in ("data", "forward", "loss", "backward", "gradient")


def test_threads_have_the_names_that_were_written() -> None:
    """And the frames of whoever writes are of no interest."""
    text = (
        'Current thread 0x01 [MainThread] (most recent call first):\n  File "/x/sonde/flow/dump.py", line 3 in write\n'
        '  File "/home/user/train.py", line 9 in step\n'
    )
    (thread,) = threads_in(text)
    assert (thread.name, thread.frames) == ("MainThread", ["step (train.py:9)"])


# ── births ──


def test_the_first_birth_by_time_is_the_one(tmp_path: Path) -> None:
    """Over ranks whose clocks began at different times: the clock of the run decides."""
    first, second = training_processes(ranks=2, steps=3)
    late = {"start": {"mono_ns": 5_000_000_000_000, "wall_ns": 1_700_000_000_000_000_000}}
    shifted = [one._replace(start=one.start + 4_000_000_000_000) for one in second.records]
    second = second._replace(records=shifted, host="other", process={**(second.process or {}), **late})
    early = birth(certificate(layer="b"), 5)._replace(start=5_000_000_000_000 + 5_000_000)
    path = build_run(tmp_path / "run", [with_marks(first, birth(certificate(layer="a"), 9)), with_marks(second, early)])
    box = read(path)
    assert [(one.rank, one.certificate.layer) for one in box.births] == [(1, "b"), (0, "a")]


def test_a_gradient_that_comes_of_another_rank_stands_behind_its_birth(tmp_path: Path) -> None:
    """A pass adds up the gradients of all ranks before it ends, so the other rank may see it first."""
    first, second = training_processes(ranks=2, steps=3)
    echo = certificate(where="gradient", producer=False, layer="a", items=[], items_total=0)
    made = certificate(where="backward", layer="b")
    path = build_run(tmp_path / "run", [with_marks(first, birth(echo, 5)), with_marks(second, birth(made, 9))])
    write_dump(path, "nonfinite", nonfinite=echo, pid=first.pid, rank=0)
    own = write_dump(path, "nonfinite", number=1, nonfinite=made, pid=second.pid, rank=1)
    box = read(path)
    assert [(one.rank, one.certificate.layer) for one in box.births] == [(1, "b"), (0, "a")]
    assert box.main_dump is not None
    assert box.main_dump.name == own.name


def test_a_birth_knows_the_dump_that_was_written_for_it(tmp_path: Path) -> None:
    """It is told once, though mark and dump both have it."""
    path = build_run(tmp_path / "run", [with_marks(PLAIN, birth(certificate()))])
    folder = write_dump(path, "nonfinite", nonfinite=certificate())
    (found,) = read(path).births
    assert found.dump == folder.name


def test_a_birth_without_a_mark_comes_from_its_dump(run: Path) -> None:
    """The mark may have been lost."""
    write_dump(run, "nonfinite", nonfinite=certificate(), rank=3)
    (found,) = read(run).births
    assert (found.rank, found.certificate.step, found.query) == (3, 812, None)


def test_marks_after_the_birth_are_counted(tmp_path: Path) -> None:
    """They have no arguments."""
    more = [birth(certificate(), ms)._replace(args=None) for ms in (2, 3)]
    path = build_run(tmp_path / "run", [with_marks(PLAIN, birth(certificate(), 1), *more)])
    box = read(path)
    assert (len(box.births), box.later) == (1, 2)


def test_what_the_mark_does_not_say_its_record_does(tmp_path: Path) -> None:
    """The step stands in the record, too; the query gives it again."""
    path = build_run(tmp_path / "run", [with_marks(PLAIN, birth(certificate(step=None)))])
    with open_run(path) as opened:
        (found,) = black_box(opened).births
        assert found.query is not None
        assert opened.sql(found.query).fetchall() == [(found.certificate.step,)] == [(3,)]


def test_a_sealed_run_tells_the_same(tmp_path: Path) -> None:
    """Sealing leaves the black box where it is."""
    path = build_run(tmp_path / "run", [with_marks(PLAIN, birth(certificate()))])
    write_dump(path, "nonfinite", nonfinite=certificate())
    before = read(path)
    seal(path)
    assert read(path) == before


# ── which dump ──


def test_the_cause_tells_more_than_what_follows_of_it(run: Path) -> None:
    """Of a worker and of the process that it works for: the worker; on demand last of all."""
    for number, reason in enumerate(("demand", "exception", "worker", "sigterm")):
        write_dump(run, reason, number=number)
    telling = read(run).main_dump
    assert telling is not None
    assert telling.reason == "worker"


def test_of_dumps_on_demand_the_last_is_shown(run: Path) -> None:
    """Somebody wants to see how it is now."""
    write_dump(run, "demand", number=0)
    last = write_dump(run, "demand", number=1)
    telling = read(run).main_dump
    assert telling is not None
    assert telling.name == last.name


# ── without a dump ──


def test_the_records_know_the_last_batches(tmp_path: Path) -> None:
    """Their items and losses, after any end."""
    path = build_run(tmp_path / "run", training_processes(steps=20, workers=2, loss=lambda step: step / 2))
    with open_run(path) as opened:
        (found,) = last_batches(opened).values()
    assert [(one.step, one.number, one.loss) for one in found] == [(17, 17, 8.5), (18, 18, 9.0), (19, 19, 9.5)]
    assert found[-1].indices == [76, 77, 78, 79]


def test_of_a_loop_that_fetches_ahead_the_records_know_step_and_loss(tmp_path: Path) -> None:
    """Each batch came one step early, and had no loss yet when the black box was written."""
    path = build_run(tmp_path / "run", training_processes(steps=20, workers=2, loss=lambda step: step / 2))
    write_dump(path, "nonfinite", [batch(number, {}, size=4, step=number - 1, loss=None) for number in (17, 18, 19)])
    with open_run(path) as opened:
        found = used(opened, black_box(opened).dumps[0])
    assert [(one.step, one.number, one.loss) for one in found] == [(17, 17, 8.5), (18, 18, 9.0), (19, 19, 9.5)]


def test_of_any_other_loop_the_dump_knows_them_best(tmp_path: Path) -> None:
    """It has the loss of each batch, also where several make one step."""
    path = build_run(tmp_path / "run", training_processes(steps=20, workers=2, loss=lambda step: step / 2))
    write_dump(path, "nonfinite", [batch(number, {}, size=4, loss=7.0) for number in (18, 19)])
    with open_run(path) as opened:
        found = used(opened, black_box(opened).dumps[0])
    assert [(one.step, one.loss) for one in found] == [(18, 7.0), (19, 7.0)]


def accumulated(path: Path, more: int = 0) -> Path:
    """Ten steps of two batches of one loader, the losses are 0, 1, 2...; the last step has some `more` losses."""
    numbers = count()
    (process,) = training_processes(steps=10, micro_batches=2, loss=lambda _: float(next(numbers)))
    late = max(one.start for one in process.records)
    added = [BuiltRecord(probe.LOSS, probe.PROBE, kind=COUNTER, start=late, value=9.0, step=9) for _ in range(more)]
    return build_run(path, [process._replace(records=[*process.records, *added])])


def test_of_several_batches_of_a_step_each_has_its_own_loss(tmp_path: Path) -> None:
    """The losses of a step have the order of its batches."""
    with open_run(accumulated(tmp_path / "run")) as opened:
        (found,) = last_batches(opened).values()
    assert [(one.step, one.number, one.loss) for one in found] == [(8, 17, 17.0), (9, 18, 18.0), (9, 19, 19.0)]


def test_a_loss_that_may_be_of_another_batch_is_not_known(tmp_path: Path) -> None:
    """A step with more losses than batches does not tell whose they are."""
    with open_run(accumulated(tmp_path / "run", more=1)) as opened:
        (found,) = last_batches(opened).values()
    assert [(one.step, one.loss) for one in found] == [(8, 17.0), (9, None), (9, None)]


@pytest.mark.parametrize(("more", "unknown"), [(0, 19.0), (1, None)])
def test_what_the_dump_knows_of_a_loss_is_kept(tmp_path: Path, more: int, unknown: float | None) -> None:
    """In a loop that fetches ahead too; one that it does not know the records tell, if they do."""
    path = accumulated(tmp_path / "run", more)
    kept = [batch(18, {}, size=4, step=8, loss="NaN"), batch(19, {}, size=4, step=9, loss=None)]
    write_dump(path, "nonfinite", kept)
    with open_run(path) as opened:
        first, second = used(opened, black_box(opened).dumps[0])
    assert (first.step, second.step, second.loss) == (9, 9, unknown)
    assert first.loss is not None
    assert math.isnan(first.loss)
