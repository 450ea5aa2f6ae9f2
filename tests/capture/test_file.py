"""Traces on disk: what comes back, what a crash leaves, and what hostile files can do (nothing)."""

from __future__ import annotations

import json
import os
import stat
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given, settings, strategies as st
from tests.flow.hand import train

from sonde.capture import file
from sonde.capture.call import FIELDS
from sonde.capture.encode import _NOTE_FIELDS, pack_value, unpack_value
from sonde.capture.file import read_calls, write_call
from sonde.capture.result import TraceCall, TraceResult, load
from sonde.errors import RunNotFound, RunUnreadable
from sonde.values import npy
from sonde.values.note import MISSING, Item, Note
from sonde.values.snapshot import freeze


def full(value: object = None, **facts: Any) -> TraceCall:
    """A call in which every field has something."""
    known: dict[str, Any] = {
        "func_name": "get",
        "stage_name": "dataset_getter",
        "start_ns": 5,
        "duration_ns": 7,
        "seq": 3,
        "parent": 2,
        "pid": 17,
        "thread": "MainThread",
        "worker": 1,
        "epoch": 0,
        "step": 4,
        "loader": 0,
        "batch": 9,
        "error": "ValueError",
        "items": [Item(0, 7, "a"), Item(1, "key"), Item(2, None)],
    }
    return TraceCall("Data__get", inputs=[freeze(value, name="x")], **{**known, **facts})


def facts(call: TraceCall) -> dict[str, object]:
    """All that is known about a call, except the copies."""
    about = call.about
    plain = {name: getattr(about, name) for name in FIELDS if name not in ("inputs", "output")}
    return {**plain, "notes": [(kept.name, kept.note) for kept in about.captured()]}


def back(path: Path, value: object) -> Any:
    """A value that was saved and loaded."""
    TraceResult(calls=[full(value)]).save(path)
    return load(path).dataset_getter[0].x


# ── one file ──


def test_a_saved_trace_prints_the_same(tmp_path: Path) -> None:
    """Stages, calls, notes, what was asked for."""
    trace = train()
    trace.notes.append("1 value was cut.")
    trace.save(tmp_path / "t.sonde")
    again = load(tmp_path / "t.sonde")
    assert str(again) == str(trace)
    assert again.items == 2
    assert str(again.item(id="24")) == str(trace.item(id="24"))


def test_every_fact_comes_back(tmp_path: Path) -> None:
    """Nothing about a call is lost."""
    call = full({"a": numpy.ones((2, 2)), "b": float("inf"), "c": [1, (2, "x")], "d": 2**70})
    TraceResult(calls=[call]).save(tmp_path / "t.sonde")
    assert facts(load(tmp_path / "t.sonde").dataset_getter[0]) == facts(call)


def test_every_field_of_a_note_can_be_read() -> None:
    """A field that is added to Note needs a line in the table."""
    assert {*_NOTE_FIELDS, "children"} == set(Note._fields)


def test_stages_without_calls_and_unknown_ones_come_back(tmp_path: Path) -> None:
    """In their order."""
    trace = TraceResult(calls=[TraceCall("f", stage_name="augment")])
    trace.save(tmp_path / "t.sonde")
    assert [stage.name for stage in load(tmp_path / "t.sonde")] == [stage.name for stage in trace]


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        5,
        -(2**90),
        1.5,
        float("-inf"),
        2 + 3j,
        "text \udcff",
        b"\x00\xff",
        [1, [2]],
        (1, (2,)),
        {1, 2},
        {"a": 1, 2: "b", (1, 2): None},
        {},
        numpy.float64(1.5),
        numpy.datetime64("2020-01-01"),
    ],
    ids=repr,
)
def test_plain_values_come_back_as_they_were(tmp_path: Path, value: object) -> None:
    """With their types."""
    kept = freeze(value).value
    found = back(tmp_path / "t.sonde", value)
    assert found == kept
    assert type(found) is type(kept)


def test_nan_comes_back(tmp_path: Path) -> None:
    """JSON has no form for it."""
    assert numpy.isnan(back(tmp_path / "t.sonde", float("nan")))


@pytest.mark.parametrize(
    "value",
    [
        numpy.arange(6, dtype=">f4").reshape(2, 3),
        numpy.asfortranarray(numpy.arange(6).reshape(2, 3)),
        numpy.empty((0, 3), "u2"),
        numpy.array(["a", "bc"]),
        numpy.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        numpy.array([1 + 2j]),
        numpy.array(["2020-01-01"], dtype="M8[D]"),
        numpy.array([True, False]),
    ],
    ids=lambda value: str(value.dtype),
)
def test_arrays_come_back(tmp_path: Path, value: numpy.ndarray[Any, Any]) -> None:
    """Shape, type and content."""
    found = back(tmp_path / "t.sonde", value)
    assert found.dtype == freeze(value).value.dtype  # type: ignore[attr-defined]
    numpy.testing.assert_array_equal(found, value)


def test_the_same_content_is_written_and_read_once(tmp_path: Path) -> None:
    """A batch goes from stage to stage; and a file that names one array a million times takes the memory of one."""
    image = numpy.ones((100, 100))
    TraceResult(calls=[full(image), full(image.copy(), seq=4)]).save(tmp_path / "t.sonde")
    assert (tmp_path / "t.sonde").stat().st_size < 1.5 * image.nbytes
    first, second = load(tmp_path / "t.sonde").dataset_getter
    assert first.x is second.x
    assert not first.x.flags.writeable


def test_arrays_of_objects_are_not_kept(tmp_path: Path) -> None:
    """They would need pickle; their description stays."""
    value = numpy.array([{"a": 1}, None], dtype=object)
    assert back(tmp_path / "t.sonde", value) is MISSING


def test_tensors_come_back_as_arrays(tmp_path: Path) -> None:
    """The description says that it was a tensor; types that NumPy does not have are widened, which loses nothing."""
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.int64, torch.bfloat16, torch.float8_e4m3fn):
        found = back(tmp_path / "t.sonde", torch.tensor([0.0, 1.0, 2.0]).to(dtype))
        assert isinstance(found, numpy.ndarray)
        assert found.tolist() == [0, 1, 2]
    assert load(tmp_path / "t.sonde").dataset_getter[0].about.inputs[0].note.type == "torch.Tensor"


def test_the_file_is_private_and_takes_the_place_of_an_older_one(tmp_path: Path) -> None:
    """Nothing else is left in the folder."""
    path = tmp_path / "t.sonde"
    path.write_text("old")
    train().save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["t.sonde"]
    load(path)


def test_a_failed_save_leaves_the_older_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole or not at all."""
    path = tmp_path / "t.sonde"
    path.write_text("old")

    def full_disk(array: object) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(npy, "to_bytes", full_disk)
    with pytest.raises(OSError, match="No space"):
        TraceResult(calls=[full(numpy.ones(3))]).save(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["t.sonde"]


def test_nothing_is_pickled(tmp_path: Path) -> None:
    """Only JSON and plain arrays are in the file."""
    TraceResult(calls=[full({"a": numpy.ones(300), "b": [object(), "x"]})]).save(tmp_path / "t.sonde")
    with zipfile.ZipFile(tmp_path / "t.sonde") as archive:
        assert sorted(archive.namelist()) == ["0.npy", "trace.json"]
        json.loads(archive.read("trace.json"))
        npy.from_bytes(archive.read("0.npy"))


# ── hostile files ──


def archive_of(path: Path, entries: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> Path:
    """A zip file with these entries."""
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


def trace_json(**changed: object) -> bytes:
    """A trace.json with some parts changed."""
    content = {"format": file.FORMAT, "version": file.VERSION, "items": None, "stages": [], "notes": [], "calls": []}
    return json.dumps({**content, **changed}).encode()


def packed(value: object) -> dict[str, object]:
    """A call with one value, as JSON."""
    return {"disp_name": "f", "inputs": [["x", {"kind": "none", "type": "x"}, value]], "output": None, "items": []}


def deep(levels: int) -> object:
    """Lists in lists."""
    value: object = 1
    for _ in range(levels):
        value = {"list": [value]}
    return value


WRONG: list[bytes] = [
    b"",
    b"{",
    b"[" * 100_000,
    b"null",
    b"[]",
    b"{}",
    trace_json(format="other"),
    trace_json(version=99),
    trace_json(calls=[1]),
    trace_json(calls=[{}]),
    trace_json(calls=[packed({"list": 5})]),
    trace_json(calls=[packed({"set": [{"list": []}]})]),
    trace_json(calls=[packed({"array": "../../etc/passwd"})]),
    trace_json(calls=[packed({"array": "missing.npy"})]),
    trace_json(calls=[packed({"array": 7})]),
    trace_json(calls=[packed({"exec": "print()"})]),
    trace_json(calls=[packed({"bytes": "***"})]),
    trace_json(calls=[packed({"a": 1, "b": 2})]),
    trace_json(calls=[packed([1])]),
    trace_json(calls=[packed(deep(150))]),
    trace_json(calls=[{**packed(1), "seq": "x"}]),
    trace_json(calls=[{**packed(1), "items": [[0, [], None]]}]),
    trace_json(items="many"),
    trace_json(notes=3),
]


@pytest.mark.parametrize("content", WRONG, ids=range(len(WRONG)))
def test_wrong_json_is_a_clear_error(tmp_path: Path, content: bytes) -> None:
    """With the path, and what a trace file is."""
    path = archive_of(tmp_path / "t.sonde", {"trace.json": content})
    with pytest.raises(RunUnreadable, match=r"t\.sonde' is not a readable trace file .* with trace\.save"):
        load(path)


def header(shape: str, descr: str = "'<f4'", data: bytes = b"") -> bytes:
    """A .npy file that says what it likes."""
    words = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(words).to_bytes(2, "little") + words + data


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUMPY",
        b"\x93NUMPY\x09\x00\x00\x00",
        header("(1000000000000,)"),
        header("(-4,)", data=b"x" * 16),
        header("(1,)", "'|O'", b"x" * 8),
        header("(1,)", "[('a', '|O')]", b"x" * 8),
        header("__import__('os').system('true')"),
        header("(2,)", data=b"xxxx"),
        header("(2,)", data=b"x" * 80),
    ],
    ids=range(10),
)
def test_wrong_arrays_are_a_clear_error(tmp_path: Path, content: bytes) -> None:
    """Nothing is allocated that the file does not hold, and nothing is unpickled."""
    json_part = trace_json(calls=[packed({"array": "0.npy"})])
    with pytest.raises(RunUnreadable):
        load(archive_of(tmp_path / "t.sonde", {"trace.json": json_part, "0.npy": content}))


def test_compressed_entries_are_refused(tmp_path: Path) -> None:
    """A file cannot unpack to more than its own size."""
    bomb = {"trace.json": trace_json(notes=["0" * 10_000_000])}
    with pytest.raises(RunUnreadable, match="compressed"):
        load(archive_of(tmp_path / "t.sonde", bomb, zipfile.ZIP_DEFLATED))


def test_entries_that_overlap_are_refused(tmp_path: Path) -> None:
    """The same bytes many times over are a bomb too."""
    path = archive_of(tmp_path / "t.sonde", {"trace.json": trace_json(), "0.npy": b"0" * 5000})
    content = path.read_bytes()
    start = content.index(b"PK\x01\x02")
    end = content.index(b"PK\x05\x06")
    entries, tail = content[start:end], bytearray(content[end:])
    copies = 20
    tail[8:10] = tail[10:12] = (2 * copies).to_bytes(2, "little")
    tail[12:16] = (len(entries) * copies).to_bytes(4, "little")
    path.write_bytes(content[:start] + entries * copies + tail)
    with pytest.raises(RunUnreadable, match="overlap"):
        load(path)


def test_a_file_of_something_else_is_a_clear_error(tmp_path: Path) -> None:
    """Text, an empty file, a folder, a pipe at which nobody writes."""
    (tmp_path / "a").write_text("hello")
    (tmp_path / "b").touch()
    os.mkfifo(tmp_path / "c")
    for path in (tmp_path / "a", tmp_path / "b", tmp_path / "c", tmp_path):
        with pytest.raises(RunUnreadable):
            load(path)


def test_a_missing_file_is_told_as_such(tmp_path: Path) -> None:
    """Also as a FileNotFoundError."""
    with pytest.raises(RunNotFound, match="No such trace file"):
        load(tmp_path / "none.sonde")


@cache
def sound() -> bytes:
    """The content of a small trace file, the same at each look."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.sonde"
        TraceResult(calls=[full({"a": numpy.arange(9.0), "b": [1, 2.5, "x"]})]).save(path)
        return path.read_bytes()


@settings(max_examples=60, deadline=None)
@given(
    damage=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), max_size=4), left=st.floats(0, 1) | st.just(1)
)
def test_a_damaged_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, damage: list[tuple[float, int]], left: float
) -> None:
    """Any byte may be any other one, and the end may be missing."""
    path = tmp_path_factory.mktemp("damaged") / "t.sonde"
    content = bytearray(sound())
    for place, byte in damage:
        content[int(place * len(content))] = byte
    path.write_bytes(content[: int(left * len(content))])
    with suppress(RunUnreadable):
        str(load(path))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.tuples(inner, inner)
            | st.dictionaries(st.text() | st.integers(), inner, max_size=4)
        ),
        max_leaves=20,
    )
)
def test_any_plain_value_survives_json(value: object) -> None:
    """Packed, written, read, unpacked: the same."""
    again = json.loads(json.dumps(pack_value(value, str), allow_nan=False))
    assert unpack_value(again, str) == value


# ── a folder of calls ──


def test_calls_are_added_to_a_folder_and_read_back(tmp_path: Path) -> None:
    """In the order of `seq`, with their values: large ones in files of their own, small ones in the line."""
    large = numpy.arange(1000.0)
    write_call(tmp_path, full(large, seq=2))
    write_call(tmp_path, full({"small": numpy.arange(3)}, seq=1))
    first, second = read_calls(tmp_path)
    assert first.x["small"].tolist() == [0, 1, 2]
    numpy.testing.assert_array_equal(second.x, large)
    assert facts(second) == facts(full(large, seq=2)) | {"notes": facts(second)["notes"]}
    assert len(list(tmp_path.glob("*.npy"))) == 1


def test_the_files_are_private(tmp_path: Path) -> None:
    """Values may be personal data."""
    write_call(tmp_path, full(numpy.ones(1000)))
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_a_line_that_is_half_written_is_ignored_until_it_is_whole(tmp_path: Path) -> None:
    """A worker may be killed, or be writing right now."""
    write_call(tmp_path, full(1, seq=1))
    path = next(tmp_path.glob("*.jsonl"))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 2])
    seen: dict[str, int] = {}
    assert len(read_calls(tmp_path, seen)) == 1
    path.write_bytes(whole + whole)
    assert len(read_calls(tmp_path, seen)) == 1
    assert read_calls(tmp_path, seen) == []


def test_a_call_after_a_half_written_one_is_whole(tmp_path: Path) -> None:
    """A write that failed half-way (a full disk) spoils one call, not two."""
    write_call(tmp_path, full(1, seq=1))
    path = next(tmp_path.glob("*.jsonl"))
    path.write_bytes(path.read_bytes() + b'{"disp_name": "hal')
    write_call(tmp_path, full(2, seq=2))
    assert [call.x for call in read_calls(tmp_path)] == [1, 2]


@pytest.mark.parametrize(
    "line", [b"nonsense", b"[]", b"{}", b"\xff\xfe", json.dumps(packed({"array": "../x.npy"})).encode()], ids=range(5)
)
def test_wrong_lines_are_passed_over(tmp_path: Path, line: bytes) -> None:
    """What is right is kept."""
    (tmp_path / "calls-1.jsonl").write_bytes(line + b"\n")
    write_call(tmp_path, full(7))
    assert [call.x for call in read_calls(tmp_path)] == [7]


def spoil_missing(path: Path) -> None:
    """Take the file away."""
    path.unlink()


def spoil_short(path: Path) -> None:
    """Cut its end off."""
    path.write_bytes(path.read_bytes()[:-1])


def spoil_link(path: Path) -> None:
    """Put a link in its place."""
    path.rename(path.with_suffix(".kept"))
    path.symlink_to(path.with_suffix(".kept"))


@pytest.mark.parametrize("spoil", [spoil_missing, spoil_short, spoil_link])
def test_a_call_is_worth_more_than_its_value(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    """Where the array is gone or not what it should be, the description is left."""
    write_call(tmp_path, full(numpy.ones(1000)))
    spoil(next(tmp_path.glob("*.npy")))
    (call,) = read_calls(tmp_path)
    assert call.x is MISSING
    assert call.about.inputs[0].note.shape == (1000,)


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    """Only names of ours are read."""
    (tmp_path / "calls-x.jsonl").write_bytes(b"{}\n")
    (tmp_path / "notes.txt").write_text("x")
    assert read_calls(tmp_path) == []


def test_many_processes_write_into_one_folder(tmp_path: Path) -> None:
    """Each has a file of its own."""
    children = []
    for n in range(3):
        child = os.fork()
        if child == 0:
            for m in range(5):
                write_call(tmp_path, full(numpy.full(500, n), seq=10 * n + m))
            os._exit(0)
        children.append(child)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    calls = read_calls(tmp_path)
    assert [call.about.seq for call in calls] == [10 * n + m for n in range(3) for m in range(5)]
    assert all((call.x == call.about.seq // 10).all() for call in calls)
