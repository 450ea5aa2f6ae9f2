"""The Chrome export, read back by Perfetto's trace processor and by a strict JSON reader."""

from __future__ import annotations

import gzip
import io
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.exchange.engine import Perfetto
from tests.exchange.spans import interleaved, nested

from sonde.analysis.run import open_run
from sonde.analysis.seal import seal
from sonde.exchange import chrome, rows
from sonde.store import record
from sonde.testing import START_NS, WALL_NS, BuiltProcess, BuiltRecord, build_run, build_training

SLICES = """
    SELECT s.name, s.ts, s.dur, s.depth, p.name AS parent, t.tid, t.name AS thread, process.pid
    FROM slice s LEFT JOIN slice p ON s.parent_id = p.id
    JOIN thread_track ON s.track_id = thread_track.id JOIN thread t USING (utid) JOIN process USING (upid)
"""
NAMES = ["loss", 'quo"te', "new\nline", "nul\0", "\x1b[31m", "ünïcödé", "日本", "</script>", "back\\slash", "\x7f", ""]


def written(folder: Path, processes: list[BuiltProcess], **run: object) -> bytes:
    path = build_run(folder / "run", processes, **run)
    out = folder / "out.json"
    with open_run(path) as opened:
        chrome.export(opened, out)
    return out.read_bytes()


def strict(content: bytes) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(content, parse_constant=refuse)


def ask(content: bytes, sql: str) -> list[dict[str, Any]]:
    with Perfetto(trace=io.BytesIO(content)) as processor:
        problems = [
            row.name for row in processor.query("SELECT name FROM stats WHERE severity = 'data_loss' AND value > 0")
        ]
        problems += [
            row.name for row in processor.query("SELECT name FROM stats WHERE severity = 'error' AND value > 0")
        ]
        assert problems == []
        return [dict(vars(row)) for row in processor.query(sql)]


def one_thread(*records: BuiltRecord, **more: Any) -> list[BuiltProcess]:
    return [BuiltProcess(records, **more)]


def test_perfetto_finds_every_span_with_its_times(tmp_path: Path) -> None:
    """Each span is one slice, exact to the nanosecond."""
    spans = nested(300, 1)
    found = {row["name"]: row for row in ask(written(tmp_path, one_thread(*spans)), SLICES)}
    assert len(found) == 300
    assert all((found[one.name]["ts"], found[one.name]["dur"]) == (one.start - START_NS, one.dur) for one in spans)


@pytest.mark.parametrize("seed", range(3))
def test_perfetto_finds_the_recorded_depths_and_parents(tmp_path: Path, seed: int) -> None:
    """What nests in the program nests in the viewer."""
    spans = nested(200, seed)
    names = {one.seq: one.name for one in spans}
    for row in ask(written(tmp_path, one_thread(*spans)), SLICES):
        one = spans[int(row["name"][1:]) - 1]
        assert (row["depth"], row["parent"]) == (one.depth, names.get(one.parent))


def test_no_span_is_lost_where_a_clock_stands_still(tmp_path: Path) -> None:
    """Spans that begin and end at the same instant are all there."""
    spans = [BuiltRecord(f"s{n}", dur=n % 2, parent=n // 2) for n in range(20)]
    assert len(ask(written(tmp_path, one_thread(*spans)), SLICES)) == 20


@pytest.mark.parametrize("seed", range(3))
def test_interleaving_tasks_keep_their_depths(tmp_path: Path, seed: int) -> None:
    """Spans that overlap without nesting lie on tracks of their own, none is lost, and each is below its own parent."""
    spans = interleaved(6, 200, seed)
    names = {one.seq: one.name for one in spans}
    found = ask(written(tmp_path, one_thread(*spans)), SLICES)
    assert len(found) == len(spans)
    for row in found:
        one = spans[int(row["name"][1:]) - 1]
        assert (row["depth"], row["parent"]) == (one.depth, names.get(one.parent))


def test_tasks_are_named_after_their_thread(tmp_path: Path) -> None:
    """The second track of a thread says whose it is."""
    spans = [BuiltRecord("a", dur=10), BuiltRecord("b", start=START_NS + 5, dur=10)]
    found = ask(written(tmp_path, one_thread(*spans)), SLICES)
    assert {row["name"]: row["thread"] for row in found} == {"a": "T1", "b": "T1 (task 2)"}


def test_threads_and_processes_are_named(tmp_path: Path) -> None:
    """Thread names, and processes with rank and role, in the order of ranks."""
    processes = [
        BuiltProcess([BuiltRecord("b", dur=1)], pid=2000, process={"rank": 1, "role": "trainer"}),
        BuiltProcess([BuiltRecord("w", dur=1)], pid=3000, process={"rank": 0, "role": "worker", "worker": 2}),
        BuiltProcess([BuiltRecord("a", dur=1), BuiltRecord("c", dur=1, thread=2)], pid=1000, process={"rank": 0}),
    ]
    content = written(tmp_path, processes)
    named = ask(content, "SELECT pid, name FROM process WHERE name IS NOT NULL ORDER BY pid")
    assert [(row["pid"], row["name"]) for row in named] == [
        (1000, "rank 0"),
        (2000, "rank 1"),
        (3000, "rank 0 worker 2"),
    ]
    threads = ask(content, "SELECT tid, name FROM thread WHERE name IS NOT NULL ORDER BY tid")
    assert [(row["tid"], row["name"]) for row in threads] == [(1000, "T1"), (1001, "T2"), (2000, "T1"), (3000, "T1")]
    order = {
        e["pid"]: e["args"]["sort_index"] for e in strict(content)["traceEvents"] if e["name"] == "process_sort_index"
    }
    assert order == {1000: 0, 3000: 1, 2000: 2}


def test_equal_pids_of_two_hosts_stay_apart(tmp_path: Path) -> None:
    """A pid that another host or an exec has used already gets a number of its own."""
    processes = [BuiltProcess([BuiltRecord(host, dur=1)], pid=7, host=host) for host in ("alpha", "beta")]
    processes.append(BuiltProcess([BuiltRecord("again", dur=1)], pid=7, host="alpha", n=1))
    found = ask(written(tmp_path, processes), SLICES)
    assert len({row["pid"] for row in found}) == 3


def test_a_reused_thread_id_is_another_thread(tmp_path: Path) -> None:
    """Two threads that had the same id, one after the other, are two tracks."""
    run = build_run(tmp_path / "run", one_thread(BuiltRecord("a", dur=1), BuiltRecord("b", dur=1, thread=2)))
    names = next(run.glob("*/names.jsonl"))
    names.write_text(names.read_text().replace('"tid": 1001', '"tid": 1000'))
    with open_run(run) as opened:
        chrome.export(opened, tmp_path / "out")
    found = ask((tmp_path / "out").read_bytes(), SLICES)
    assert {row["name"]: row["thread"] for row in found} == {"a": "T1", "b": "T2"}


def test_counters_are_counters(tmp_path: Path) -> None:
    """Each finite value of a counter is a point of its track."""
    values = [BuiltRecord("loss", kind=record.COUNTER, start=START_NS + n, value=n / 4) for n in range(5)]
    found = ask(
        written(tmp_path, one_thread(*values)),
        "SELECT t.name, c.ts, c.value FROM counter c JOIN process_counter_track t ON c.track_id = t.id ORDER BY ts",
    )
    assert [(row["ts"], row["value"]) for row in found] == [(n, n / 4) for n in range(5)]
    assert {row["name"].split()[0] for row in found} == {"loss"}


COUNTERS = """
    SELECT t.name, p.name AS process, c.value FROM counter c JOIN process_counter_track t ON c.track_id = t.id
    JOIN process p USING (upid) ORDER BY c.ts
"""


def test_counters_of_other_keys_or_categories_are_tracks_of_their_own(tmp_path: Path) -> None:
    """No line jumps between things that have nothing to do with each other."""
    counters = [
        BuiltRecord("gpu", "user", kind=record.COUNTER, start=START_NS, value=0.0, key=0),
        BuiltRecord("gpu", "user", kind=record.COUNTER, start=START_NS + 1, value=100.0, key=1),
        BuiltRecord("gpu", "other", kind=record.COUNTER, start=START_NS + 2, value=1000.0),
        BuiltRecord("samples", "probe", kind=record.COUNTER, start=START_NS + 3, value=8.0, key=1),
        BuiltRecord("samples", "probe", kind=record.COUNTER, start=START_NS + 4, value=8.0, key=2),
    ]
    found = ask(written(tmp_path, one_thread(*counters)), COUNTERS)
    names = [row["name"].removesuffix(" value") for row in found]
    assert names == ["gpu [0]", "gpu [1]", "other.gpu", "probe.samples", "probe.samples"]


def test_what_a_launcher_samples_of_processes_is_named_by_them(tmp_path: Path) -> None:
    """The memory of a rank is not that of the launcher; two launchers can be told apart."""
    sampled = [
        BuiltRecord("rss", "system", kind=record.COUNTER, start=START_NS + n, value=float(n), key=key)
        for n, key in enumerate((1, 2, 3, 99))
    ]
    processes = [
        BuiltProcess(sampled, pid=1, process={"role": "launcher"}),
        BuiltProcess([BuiltRecord(dur=1)], pid=2, process={"role": "launcher"}),
        BuiltProcess([BuiltRecord(dur=1)], pid=3, process={"rank": 0, "role": "trainer"}),
    ]
    found = ask(written(tmp_path, processes), COUNTERS)
    assert {row["process"] for row in found} == {"launcher (pid 1)"}
    assert [row["name"].removesuffix(" value") for row in found] == [
        "system.rss, launcher (pid 1)",
        "system.rss, launcher (pid 2)",
        "system.rss, rank 0",
        "system.rss [99]",
    ]


def worker(pid: int, number: int, start: int, end: int) -> BuiltProcess:
    """A loader worker that lived from `start` to `end`."""
    times = {name: {"mono_ns": START_NS + at, "wall_ns": WALL_NS + at} for name, at in (("start", start), ("end", end))}
    facts = {"rank": 0, "role": "worker", "worker": number, **times}
    return BuiltProcess([BuiltRecord(f"w{pid}", start=START_NS + start, dur=end - start)], pid=pid, process=facts)


def test_workers_of_one_number_share_a_track_over_epochs(tmp_path: Path) -> None:
    """Unless they live at the same time, as those of two loaders."""
    built = [worker(10, 0, 0, 50), worker(11, 1, 0, 50), worker(12, 0, 100, 150), worker(13, 0, 120, 170)]
    found = {row["name"]: row["pid"] for row in ask(written(tmp_path, built), SLICES)}
    assert found == {"w10": 10, "w11": 11, "w12": 10, "w13": 13}


ARROWS = """
    SELECT a.name AS source, b.name AS target FROM flow JOIN slice a ON a.id = flow.slice_out JOIN slice b ON b.id = flow.slice_in
    ORDER BY a.ts, b.ts
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_steps_are_slices_and_arrows_lead_from_items_to_them(tmp_path: Path, workers: int) -> None:
    """Each step has a slice; each item leads to its batch, each batch to the end of the step that used it."""
    run = build_training(tmp_path / "run", ranks=1, steps=3, workers=workers, batch_size=2)
    with open_run(run) as opened:
        chrome.export(opened, tmp_path / "out")
    content = (tmp_path / "out").read_bytes()
    slices = ask(content, f"{SLICES} WHERE t.name = 'steps' AND s.dur > 0 ORDER BY s.ts")
    assert [row["name"] for row in slices] == ["step 0", "step 1", "step 2"]
    found = [(row["source"], row["target"]) for row in ask(content, ARROWS)]
    items = [("item", f"batch {number}") for number in range(3) for _ in range(2)]
    assert sorted(found) == sorted([*items, *((f"batch {number}", f"step {number} ends") for number in range(3))])


@pytest.mark.parametrize(("value", "text"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")])
def test_a_value_that_no_viewer_can_draw_is_a_mark(tmp_path: Path, value: float, text: str) -> None:
    """NaN and infinities are shown as marks with the value as text."""
    content = written(tmp_path, one_thread(BuiltRecord("loss", kind=record.COUNTER, value=value)))
    (event,) = [e for e in strict(content)["traceEvents"] if e["ph"] != "M"]
    assert (event["ph"], event["args"]) == ("i", {"value": text})


def test_marks_are_instants(tmp_path: Path) -> None:
    """A mark has a time and no duration."""
    (row,) = ask(written(tmp_path, one_thread(BuiltRecord("here", kind=record.MARK))), SLICES)
    assert (row["name"], row["dur"]) == ("here", 0)


def test_arguments_arrive(tmp_path: Path) -> None:
    """Step, epoch, key, error and the user's own arguments can be asked for."""
    span = BuiltRecord(
        "item", dur=5, key=8412, step=3, epoch=1, flags=record.ERROR, args={"path": "a.npy", "size": {"w": 2}}
    )
    found = ask(
        written(tmp_path, one_thread(span)),
        "SELECT key, coalesce(string_value, int_value) AS value FROM args WHERE key GLOB 'args.*'",
    )
    assert {row["key"].removeprefix("args."): str(row["value"]) for row in found} == {
        "key": "8412", "step": "3", "epoch": "1", "error": "1", "path": "a.npy", "size.w": "2",
    }  # fmt: skip


def test_the_key_of_an_iteration_is_its_count(tmp_path: Path) -> None:
    """`.iter` and `.block` events carry their number as `count`."""
    content = written(tmp_path, one_thread(BuiltRecord("fetch.iter", dur=5, key=7)))
    assert [e["args"] for e in strict(content)["traceEvents"] if e["ph"] == "X"] == [{"count": 7}]


def test_an_open_span_reaches_to_the_last_time_seen(tmp_path: Path) -> None:
    """What was running at a kill has the argument `open`, and encloses what it called."""
    records = [
        BuiltRecord("outer", flags=record.OPEN, seq=1),
        BuiltRecord("inner", start=START_NS + 10, dur=20, seq=2, parent=1, depth=1),
    ]
    content = written(tmp_path, one_thread(*records, process={"end": None}))
    found = {row["name"]: row for row in ask(content, SLICES)}
    assert (found["outer"]["dur"], found["inner"]["depth"]) == (30, 1)
    assert [e["args"] for e in strict(content)["traceEvents"] if e["name"] == "outer"] == [{"open": True}]


@given(
    st.lists(
        st.builds(
            BuiltRecord,
            name=st.sampled_from(NAMES) | st.text(st.characters(codec="utf-8"), max_size=20),
            cat=st.sampled_from(NAMES),
            kind=st.sampled_from([record.SPAN, record.COUNTER, record.MARK]),
            start=st.integers(0, 2**62),
            dur=st.integers(-(2**63), 2**63 - 1),
            value=st.floats(),
            key=st.none() | st.integers(-(2**63), 2**63 - 1),
            step=st.none() | st.integers(0, 2**32 - 1),
            parent=st.integers(0, 8),
            flags=st.sampled_from([0, record.OPEN, record.ERROR, record.META]),
            args=st.none()
            | st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=9) | st.booleans(), max_size=3),
            thread=st.integers(1, 3),
            depth=st.integers(0, 300),
            seq=st.just(0),
            epoch=st.none() | st.integers(0, 2**16 - 1),
        ),
        max_size=8,
    )
)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_a_run_holds_the_file_is_json(
    tmp_path_factory: pytest.TempPathFactory, records: list[BuiltRecord]
) -> None:
    """Names, values and times of any kind give valid JSON with every event in it."""
    content = written(tmp_path_factory.mktemp("any"), one_thread(*records))
    events = [e for e in strict(content)["traceEvents"] if e["ph"] != "M"]
    assert len(events) == len(records)
    assert content.isascii()


def test_an_empty_run_is_a_valid_file(tmp_path: Path) -> None:
    """Nothing recorded, nothing in it."""
    assert ask(written(tmp_path, []), SLICES) == []


def test_big_numbers_are_texts(tmp_path: Path) -> None:
    """A viewer would make 0 of 2**70."""
    content = written(tmp_path, one_thread(BuiltRecord(dur=1, args={"big": 2**70, "deep": [{"nan": "NaN"}, -(2**60)]})))
    (event,) = [e for e in strict(content)["traceEvents"] if e["ph"] == "X"]
    assert event["args"] == {"big": str(2**70), "deep": [{"nan": "NaN"}, str(-(2**60))]}


def test_a_run_is_written_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many pieces give the same file as one: the order does not depend on how much fits into memory."""
    processes = [BuiltProcess(nested(50, n), pid=n + 1) for n in range(4)]
    run = build_run(tmp_path / "run", processes)
    with open_run(run) as opened:
        assert chrome.export(opened, tmp_path / "one") == 200
        monkeypatch.setattr(rows, "PIECE", 7)
        monkeypatch.setattr(rows, "BATCH", 3)
        assert chrome.export(opened, tmp_path / "many") == 200
    assert (tmp_path / "one").read_bytes() == (tmp_path / "many").read_bytes()


def test_gzip_holds_the_same(tmp_path: Path) -> None:
    """A compressed export is the plain one, compressed, and Perfetto opens it."""
    with open_run(build_run(tmp_path / "run", one_thread(*nested(20, 1)))) as opened:
        chrome.export(opened, tmp_path / "plain")
        chrome.export(opened, tmp_path / "packed", gzip=True)
    packed = (tmp_path / "packed").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "plain").read_bytes()
    assert len(ask(packed, SLICES)) == 20


def test_progress_is_told_up_to_the_end(tmp_path: Path) -> None:
    """The last call says that all is done."""
    told: list[tuple[int, int]] = []
    with open_run(build_run(tmp_path / "run", one_thread(*nested(20, 1)))) as opened:
        chrome.export(opened, tmp_path / "out", progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (20, 20)


def test_a_sealed_run_gives_the_same_file(tmp_path: Path) -> None:
    """Sealing changes how a run is kept, not what it says."""
    run = build_run(tmp_path / "run", one_thread(*nested(50, 3), BuiltRecord("x", dur=1, args={"a": 1}, seq=51)))
    with open_run(run) as opened:
        chrome.export(opened, tmp_path / "raw")
    seal(run)
    with open_run(run) as opened:
        chrome.export(opened, tmp_path / "sealed")
    assert (tmp_path / "raw").read_bytes() == (tmp_path / "sealed").read_bytes()


def test_recorded_tasks_load_with_their_parents(tmp_path: Path) -> None:
    """A real program: 20 tasks hold spans across awaits, and each inner span lies in the outer one of its own task."""
    program = f"""
import asyncio, sonde

async def task(number):
    with sonde.span(f"outer{{number}}"):
        for turn in range(3):
            with sonde.span(f"inner{{number}}"):
                await asyncio.sleep(0.001 * (number % 3))

async def main():
    await asyncio.gather(*map(task, range(20)))

with sonde.init("tasks", dir={str(tmp_path)!r}, enabled=True):
    asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    (run,) = tmp_path.iterdir()
    with open_run(run) as opened:
        chrome.export(opened, tmp_path / "out.json")
    found = ask((tmp_path / "out.json").read_bytes(), SLICES)
    assert len(found) == 20 + 60
    inner = [row for row in found if row["name"].startswith("inner")]
    assert all((row["depth"], row["parent"]) == (1, row["name"].replace("inner", "outer")) for row in inner)
