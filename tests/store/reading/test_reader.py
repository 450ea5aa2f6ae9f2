"""Reading one process folder: live, finished, cut short, damaged, or no process folder at all."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from sonde.errors import RunUnreadable
from sonde.store import record
from sonde.store.reading.reader import ProcessRecording, read_process
from sonde.testing import BuiltProcess, BuiltRecord, build_process, build_run

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def built(tmp_path: Path, records: list[BuiltRecord], **fields: object) -> Path:
    """A process folder with these records."""
    run = build_run(tmp_path / "run", [])
    return build_process(run, BuiltProcess(records, **fields))  # type: ignore[arg-type]


def read(folder: Path) -> ProcessRecording:
    """The recording, with the files closed and all records in memory."""
    found = read_process(folder)
    assert len(found.records) == len(found) == len(found.thread)
    found.close()
    return found


def poke(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


def offset_of(field: str) -> int:
    return next(offset for name, offset, _ in record.HEADER_FIELDS if name == field)


# ── what was written is what is read ─────────────────────────────────────────────────────────────────────────────────

built_records = st.lists(
    st.builds(
        BuiltRecord,
        name=st.sampled_from(["a", "b", "c"]),
        kind=st.sampled_from([record.SPAN, record.COUNTER, record.MARK]),
        start=st.integers(0, 2**62),
        dur=st.integers(0, 2**62),
        value=st.floats(),
        key=st.none() | st.integers(-(2**63) + 1, 2**63 - 1),
        args=st.none() | st.dictionaries(st.text(), st.integers() | st.text(), max_size=3),
        parent=st.integers(0, 2**32 - 1),
        depth=st.integers(0, 254),
        step=st.none() | st.integers(0, 2**32 - 2),
        epoch=st.none() | st.integers(0, 2**16 - 2),
        flags=st.sampled_from([0, record.OPEN, record.ERROR, record.CUT, record.META, record.ERROR | record.CUT]),
        thread=st.integers(1, 4),
        cat=st.just("user"),
        seq=st.just(0),
    ),
    max_size=60,
)


@QUICK
@given(records=built_records, spilled=st.integers(0, 60))
def test_reads_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, records: list[BuiltRecord], spilled: int
) -> None:
    """Every record comes back whole, with its thread, wherever it lies."""
    found = read(built(tmp_path_factory.mktemp("run"), records, spilled=spilled))
    assert found.notes == []
    assert (found.missing, found.corrupt) == (0, 0)
    assert found.records["seq"].tolist() == list(range(1, len(records) + 1))
    assert found.thread.tolist() == [one.thread for one in records]
    for one, raw in zip(records, found.records, strict=True):
        assert found.names[int(raw["name"])] == (one.cat, one.name)
        assert (int(raw["start"]), int(raw["parent"]), int(raw["depth"])) == (one.start, one.parent, one.depth)
        assert int(raw["kind"]) == one.kind | one.flags
        assert (found.args(int(raw["args"])) is None) == (one.args is None)


def test_a_segment_larger_than_a_slice_is_read_whole(tmp_path: Path) -> None:
    """Blocks that reach over the border of what is read at once are not torn."""
    records = [BuiltRecord(dur=number, thread=1 + number % 3) for number in range(70_000)]
    found = read(built(tmp_path, records, spilled=70_000))
    assert found.records["dur"].tolist() == list(range(70_000))
    assert found.thread.tolist() == [1 + number % 3 for number in range(70_000)]


def test_a_span_written_again_replaces_the_open_one_and_keeps_its_thread(tmp_path: Path) -> None:
    """The complete record wins; the thread is that of the first."""
    records = [
        BuiltRecord(flags=record.OPEN, thread=1),
        BuiltRecord(dur=1, thread=2),
        BuiltRecord(seq=1, dur=7, flags=record.AGAIN, thread=2),
    ]
    for spilled in range(3):
        found = read(built(tmp_path / str(spilled), records, spilled=spilled))
        assert found.records["dur"].tolist() == [7, 1]
        assert found.records["kind"].tolist() == [record.SPAN, record.SPAN]
        assert found.thread.tolist() == [1, 2]
        assert found.missing == 0


def test_a_cancelled_record_is_no_record_and_no_loss(tmp_path: Path) -> None:
    """Void removes the number, whether it was written in place or again."""
    records = [
        BuiltRecord(),
        BuiltRecord(kind=record.VOID),
        BuiltRecord(flags=record.OPEN),
        BuiltRecord(seq=3, kind=record.VOID, flags=record.AGAIN, thread=2),
    ]
    found = read(built(tmp_path, records))
    assert found.records["seq"].tolist() == [1]
    assert found.missing == 0


def test_numbers_that_no_record_has_are_counted_as_missing(tmp_path: Path) -> None:
    """A gap, and what was given out behind the last record."""
    records = [BuiltRecord(seq=3), BuiltRecord(seq=5)]
    assert read(built(tmp_path, records, next_seq=10)).missing == 7


def test_far_apart_numbers_are_counted_without_a_table(tmp_path: Path) -> None:
    """A run at its size cap loses far more records than it keeps."""
    records = [BuiltRecord(seq=7), BuiltRecord(seq=3_000_000_000), BuiltRecord(seq=4_000_000_000, flags=record.OPEN)]
    records.append(BuiltRecord(seq=4_000_000_000, flags=record.AGAIN, dur=3))
    found = read(built(tmp_path, records))
    assert found.records["seq"].tolist() == [7, 3_000_000_000, 4_000_000_000]
    assert found.records["dur"].tolist() == [0, 0, 3]
    assert found.missing == 4_000_000_000 - 3


def test_a_record_in_ring_and_segment_is_read_once(tmp_path: Path) -> None:
    """A kill between the write and the word of it leaves records in both places."""
    folder = built(tmp_path, [BuiltRecord(dur=number) for number in range(100)], spilled=60)
    rings = folder / "rings"
    records = np.frombuffer((folder / "events.seg").read_bytes(), dtype=list(record.RECORD_FIELDS))[1:]
    poke(rings, record.HEADER_BYTES + 8, bytes(8))  # spilled
    poke(rings, record.HEADER_BYTES + record.RING_HEAD_BYTES, records.tobytes())
    found = read(folder)
    assert found.records["dur"].tolist() == list(range(100))
    assert (found.missing, found.notes) == (0, [])


def test_depths_that_do_not_fit_are_found_through_the_parents(tmp_path: Path) -> None:
    """Depth 255 means 255 or more."""
    records = [BuiltRecord(depth=depth, parent=depth) for depth in range(1000)]
    found = read_process(built(tmp_path, records, spilled=500))
    depths = {
        int(seq): int(depth)
        for chunk in found.chunks()
        for seq, depth in zip(chunk.records["seq"], chunk.depths, strict=True)
    }
    assert depths == {depth + 1: depth for depth in range(1000)}
    found.close()


def test_parents_in_a_circle_do_not_hang(tmp_path: Path) -> None:
    """Damaged parents give some depth."""
    records = [BuiltRecord(depth=255, parent=2), BuiltRecord(depth=255, parent=1), BuiltRecord(depth=255, parent=3)]
    assert len(read(built(tmp_path, records))) == 3


def test_losses_are_told_by_reason(tmp_path: Path) -> None:
    """The header says what the process itself knows."""
    found = read(built(tmp_path, [BuiltRecord()], header={"lost_space": 3, "lost_cap": 4, "lost_args": 5}))
    assert found.lost == {"space": 3, "cap": 4, "ring": 0, "args": 5}


def test_block_writes_need_no_rings(tmp_path: Path) -> None:
    """Without rings everything is in the segment, and nothing is wrong."""
    folder = built(tmp_path, [BuiltRecord(dur=4), BuiltRecord(seq=4)], spilled=5, process={"writes": "block"})
    (folder / "rings").unlink()
    found = read(folder)
    assert found.notes == []
    assert (len(found), found.missing, found.lost) == (2, 2, None)


def test_rings_elsewhere_are_read(tmp_path: Path) -> None:
    """process.json names the file where the rings lie on another file system."""
    place = tmp_path / "scratch-rings"
    folder = built(tmp_path, [BuiltRecord(dur=4)], process={"rings": str(place)})
    shutil.move(folder / "rings", place)
    assert read(folder).records["dur"].tolist() == [4]


def test_rings_elsewhere_that_are_a_link_are_refused(tmp_path: Path) -> None:
    """A folder from somebody else cannot make us follow links."""
    place = tmp_path / "link"
    folder = built(tmp_path, [BuiltRecord(dur=4)], process={"rings": str(place)})
    place.symlink_to(folder / "rings")
    found = read(folder)
    assert len(found) == 0
    assert "rings is a symbolic link" in found.notes[0]


# ── damage ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def small(tmp_path: Path) -> Path:
    """A small process folder with something of everything."""
    records = [
        BuiltRecord(
            name=f"n{number % 3}", dur=number, thread=1 + number % 2, args={"i": number} if number % 2 else None
        )
        for number in range(30)
    ]
    records.append(BuiltRecord(kind=record.COUNTER, value=2.5))
    records.append(BuiltRecord(seq=3, dur=99, flags=record.AGAIN))
    return built(tmp_path, records, spilled=10)


def survey(folder: Path) -> int:
    """Read everything there is; the number of records."""
    try:
        found = read_process(folder)
    except RunUnreadable:
        return 0
    records = found.records
    for id in set(records["args"].tolist()):
        text = found.args(id)
        assert text is None or text.startswith("{")
    assert len(records) <= len(found) + 1
    assert found.missing >= 0
    found.close()
    return len(records)


@pytest.mark.parametrize("name", ["events.seg", "args.bin", "names.jsonl", "process.json"])
def test_cut_at_every_byte_keeps_the_good_part(tmp_path: Path, name: str) -> None:
    """No place to cut a file at makes the reader fail, and more of the file never gives fewer records."""
    folder = small(tmp_path)
    content = (folder / name).read_bytes()
    counts = []
    for size in range(len(content) + 1):
        (folder / name).write_bytes(content[:size])
        counts.append(survey(folder))
    assert counts == sorted(counts)
    assert counts[-1] == 31
    assert counts[0] >= 11


@pytest.mark.parametrize("step", [48 * 7, pytest.param(1, marks=pytest.mark.soak)])
def test_cut_rings_keep_the_good_part(tmp_path: Path, step: int) -> None:
    """The same for the rings, at every byte of the heads and at every `step` elsewhere."""
    folder = small(tmp_path)
    content = (folder / "rings").read_bytes()
    heads = [record.HEADER_BYTES + ring * record.RING_BYTES for ring in range(2)]
    sizes = {*range(140), *range(0, len(content), step), len(content)}
    sizes |= {head + number for head in heads for number in range(-2, 200)}
    counts = []
    for size in sorted(sizes):
        (folder / "rings").write_bytes(content[:size])
        counts.append(survey(folder))
    assert counts[-1] == 31
    assert min(counts) >= 20


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bits_never_break_the_reader(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Any bits of any file may be wrong."""
    flip_and_survey(tmp_path_factory, data)


@pytest.mark.soak
@settings(max_examples=5000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_many_flipped_bits_never_break_the_reader(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """The same, often."""
    flip_and_survey(tmp_path_factory, data)


def flip_and_survey(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Flip a few bits of a small run, most of them where something stands, and read it."""
    folder = small(tmp_path_factory.mktemp("run"))
    for _ in range(data.draw(st.integers(1, 8))):
        path = folder / data.draw(st.sampled_from(["events.seg", "rings", "args.bin", "names.jsonl", "process.json"]))
        content = bytearray(path.read_bytes())
        used = min(len(content), 6000) if path.name == "rings" else len(content)
        content[data.draw(st.integers(0, used - 1))] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(content)
    survey(folder)


def test_a_damaged_block_head_costs_that_block_only(tmp_path: Path) -> None:
    """Reading goes on at the next valid head, and what was skipped is counted."""
    folder = built(tmp_path, [BuiltRecord(dur=number) for number in range(2000)], spilled=2000)
    poke(folder / "events.seg", (record.SPILL_RECORDS + 1) * record.RECORD_SIZE, bytes(8))
    found = read(folder)
    assert len(found) == 2000 - record.SPILL_RECORDS
    assert found.missing == record.SPILL_RECORDS
    assert found.corrupt == record.SPILL_RECORDS + 1
    assert "damaged" in found.notes[0]


@pytest.mark.parametrize("field", ["next_seq", "seg_len", "rings"])
@pytest.mark.parametrize("value", [0, 2**31, 2**32 - 1])
def test_bogus_numbers_in_the_header_cost_no_memory(tmp_path: Path, field: str, value: int) -> None:
    """A number in a file is never believed further than the file reaches."""
    folder = small(tmp_path)
    poke(folder / "rings", offset_of(field), struct.pack("<I", value))
    survey(folder)


def test_a_too_low_next_number_is_not_believed(tmp_path: Path) -> None:
    """If nearly all records have a higher number, the header is wrong and not they."""
    found = read(built(tmp_path, [BuiltRecord() for _ in range(50)], header={"next_seq": 2}))
    assert len(found) == 50
    assert "damaged" in found.notes[0]


def test_a_bogus_length_of_arguments_costs_no_memory(tmp_path: Path) -> None:
    """Arguments that reach behind the end of their file are missing."""
    folder = built(tmp_path, [BuiltRecord(args={"a": 1})])
    poke(folder / "args.bin", 8, struct.pack("<I", 2**32 - 1))
    found = read(folder)
    assert found.args(1) is None
    assert "args.bin is damaged" in found.notes[0]


@pytest.mark.parametrize("content", [b'{"a": NaN}', b'{"a": "\xff"}', b"[1, 2, 34]", b'{"a": 1234'])
def test_arguments_that_are_no_json_object_are_missing(tmp_path: Path, content: bytes) -> None:
    """Only a JSON object is ever handed out."""
    folder = built(tmp_path, [BuiltRecord(args={"a": 12345})])
    poke(folder / "args.bin", 8, struct.pack("<I", len(content)) + content)
    assert read(folder).args(1) is None


def test_unknown_argument_ids_are_missing(tmp_path: Path) -> None:
    """Ids outside of the file give nothing."""
    found = read(built(tmp_path, [BuiltRecord(args={"a": 1})]))
    assert found.args(0) is None
    assert found.args(2**32 - 1) is None


def test_a_sparse_giant_does_not_hang(tmp_path: Path) -> None:
    """A hole of many gigabytes in the segment is given up on."""
    folder = built(tmp_path, [BuiltRecord(dur=4)], spilled=1)
    (folder / "rings").unlink()
    os.truncate(folder / "events.seg", 2**34)
    assert len(read(folder)) == 1


@pytest.mark.parametrize("name", ["events.seg", "rings", "args.bin", "names.jsonl", "process.json"])
@pytest.mark.parametrize("what", ["nothing", "folder", "pipe", "link"])
def test_something_else_in_the_place_of_a_file(tmp_path: Path, name: str, what: str) -> None:
    """A missing file, a folder, a pipe or a link is noted, and the other files are read."""
    folder = small(tmp_path)
    (folder / name).unlink()
    if what == "folder":
        (folder / name).mkdir()
    elif what == "pipe":
        os.mkfifo(folder / name)
    elif what == "link":
        (folder / name).symlink_to("/dev/zero")
    found = read_process(folder)
    text = found.args(1)
    assert (text is None) == (name == "args.bin")
    assert any(name in note for note in found.notes)
    assert len(found) >= 11
    found.close()


def test_a_folder_that_tells_nothing_is_an_error(tmp_path: Path) -> None:
    """The message says what is wrong with each file, and what to do."""
    folder = tmp_path / "host-1-0"
    folder.mkdir()
    (folder / "names.jsonl").write_text("{}\n")
    with pytest.raises(RunUnreadable, match=r"process.json is missing; rings is missing.*delete it"):
        read_process(folder)


def test_a_path_that_is_no_folder_is_an_error(tmp_path: Path) -> None:
    """So is a link to a folder."""
    (tmp_path / "link").symlink_to(tmp_path)
    for path in (tmp_path / "nothing", tmp_path / "link"):
        with pytest.raises(RunUnreadable, match="not a process folder"):
            read_process(path)


def test_a_newer_format_is_an_error(tmp_path: Path) -> None:
    """Nobody can guess what a later version writes."""
    with pytest.raises(RunUnreadable, match=r"format 2; .*newer version"):
        read_process(built(tmp_path, [BuiltRecord()], process={"schema": 2}))


def test_what_process_json_lacks_comes_from_the_folder_name(tmp_path: Path) -> None:
    """Host and pid stand there too."""
    folder = built(tmp_path, [BuiltRecord()], host="node-7", pid=4711)
    (folder / "process.json").write_text("not JSON")
    found = read(folder)
    assert (found.info.host, found.info.pid, found.info.n) == ("node-7", 4711, 0)
    assert "process.json is damaged" in found.notes[0]


def test_values_of_a_wrong_type_in_process_json_are_unknown(tmp_path: Path) -> None:
    """Each value is checked by itself."""
    fields = {"pid": "x", "rank": 2**70, "worker": True, "role": 7, "start": [], "end": {"mono_ns": 1}, "exit_code": 3}
    info = read(built(tmp_path, [BuiltRecord()], process=fields)).info
    assert (info.pid, info.rank, info.worker, info.role, info.start, info.end) == (1000, None, None, None, None, None)
    assert info.exit_code == 3


def test_lines_of_names_that_make_no_sense_are_skipped(tmp_path: Path) -> None:
    """They are counted in a note; a line that is just being written is no damage."""
    folder = built(tmp_path, [BuiltRecord()])
    with (folder / "names.jsonl").open("ab") as file:
        file.write(b'7\n{"id": 5}\n\xff\n{"id": 6, "cat": "c", "name": "\\ud800"}\n{"id": 7, "ca')
    found = read(folder)
    assert found.names[6] == ("c", "\\ud800")
    assert found.notes == ["names.jsonl is damaged: 3 lines are invalid"]
