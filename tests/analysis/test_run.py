"""Opening runs and asking them."""

from __future__ import annotations

import gc
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.analysis.sample import MS, START_NS, WALL_NS, running, sample

from sonde.analysis.records import schema
from sonde.analysis.run import Run, open_run
from sonde.analysis.seal import seal
from sonde.errors import QueryRefused, RunNotFound, UnknownName
from sonde.store import record
from sonde.store.folder import host
from sonde.testing import BuiltProcess, BuiltRecord, build_process, build_run


def run_of(tmp_path: Path, *processes: BuiltProcess) -> Run:
    return open_run(build_run(tmp_path / "run", processes))


def test_events_have_the_columns_of_the_design(tmp_path: Path) -> None:
    """Names and types stand in one list, and the documentation has them all."""
    with run_of(tmp_path, BuiltProcess([BuiltRecord()])) as run:
        assert list(zip(run.table("events").columns, map(str, run.table("events").types), strict=True)) == list(
            schema.EVENTS
        )
        found = list(zip(run.table("processes").columns, map(str, run.table("processes").types), strict=True))
        assert found == list(schema.PROCESSES)


def test_documentation_names_every_column() -> None:
    """docs/reference/tables.md has a row for each column."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "tables.md").read_text()
    listed = {
        word.strip() for line in text.splitlines() if line.startswith("| ") for word in line.split("|")[1].split(",")
    }
    assert {name for name, _ in schema.EVENTS + schema.PROCESSES} <= listed


def test_a_span_is_one_row_with_all_its_values(tmp_path: Path) -> None:
    """Nothing is lost between the record and the table."""
    one = BuiltRecord(
        "f", "compute", start=START_NS + 5, dur=7, key=-3, args={"a": 1}, parent=9, depth=2, step=4, epoch=0
    )
    with run_of(tmp_path, BuiltProcess([one], process={"rank": 2})) as run:
        ((*values,),) = run.table("events").fetchall()
    row = dict(zip((name for name, _ in schema.EVENTS), values, strict=True))
    assert row == {
        "host": "testhost", "rank": 2, "pid": 1000, "tid": 1000, "thread": "T1", "lane": 1, "process": "testhost-1000-0",
        "seq": 1, "parent": 9, "depth": 2, "kind": "span", "cat": "compute", "name": "f", "start_ns": WALL_NS + 5, "dur_ns": 7,
        "value": None, "key": -3, "epoch": 0, "step": 4, "open": False, "error": False, "args": '{"a": 1}', "meta": False,
        "cut": False,
    }  # fmt: skip


def test_missing_values_are_null(tmp_path: Path) -> None:
    """Never zero: no key, step, epoch, parent, arguments, duration, value or rank."""
    with run_of(tmp_path, BuiltProcess([BuiltRecord(flags=record.OPEN)])) as run:
        found = run.sql("SELECT rank, parent, dur_ns, value, key, epoch, step, args, open FROM events").fetchall()
    assert found == [(None, None, None, None, None, None, None, None, True)]


def test_counters_keep_every_value(tmp_path: Path) -> None:
    """NaN is a value and not a missing one; so are the infinities."""
    values = [1.5, float("nan"), float("inf"), float("-inf"), -0.0]
    counters = [BuiltRecord(kind=record.COUNTER, value=value) for value in values]
    with run_of(tmp_path, BuiltProcess([*counters, BuiltRecord(dur=3)])) as run:
        found = [value for (value,) in run.sql("SELECT value FROM events ORDER BY seq").fetchall()]
        kinds = run.sql("SELECT kind, count(*), count(dur_ns) FROM events GROUP BY kind ORDER BY kind").fetchall()
    assert str(found[:5]) == str(values)
    assert found[5] is None
    assert kinds == [("counter", 5, 0), ("span", 1, 1)]


columns: dict[str, st.SearchStrategy[Any]] = {
    "key": st.none() | st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(0, 300),
    "step": st.none() | st.integers(0, 2**32 - 2) | st.integers(0, 3),
    "epoch": st.none() | st.integers(0, 2**16 - 2),
    "parent": st.integers(0, 2**32 - 1) | st.integers(0, 3),
    "dur": st.integers(-(2**63), 2**63 - 1) | st.integers(0, 1000),
    "start": st.integers(0, 2**62),
    "value": st.floats(),
    "kind": st.sampled_from([record.SPAN, record.COUNTER, record.MARK]),
    "flags": st.sampled_from([0, record.OPEN, record.ERROR]),
}
# Not `st.builds`: newer versions of Hypothesis also fill the fields that have a default.
built_records = st.fixed_dictionaries(columns).map(lambda values: BuiltRecord(**values))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=st.lists(built_records, min_size=1, max_size=12))
def test_any_mixture_of_values_comes_back(tmp_path_factory: pytest.TempPathFactory, records: list[BuiltRecord]) -> None:
    """However small the columns were made, the values are the same."""
    with run_of(tmp_path_factory.mktemp("run"), BuiltProcess(records)) as run:
        query = "SELECT key, step, epoch, coalesce(parent, 0), start_ns, dur_ns, value, open FROM events ORDER BY seq"
        found = run.sql(query).fetchall()
    assert len(found) == len(records)
    for one, (key, step, epoch, parent, start, dur, value, is_open) in zip(records, found, strict=True):
        assert (key, step, epoch, parent) == (one.key, one.step, one.epoch, one.parent)
        assert start == one.start + WALL_NS - START_NS
        assert is_open == bool(one.flags & record.OPEN)
        assert dur == (one.dur if one.kind == record.SPAN and not is_open else None)
        same = value == one.value or (value is not None and math.isnan(value) and math.isnan(one.value))
        assert same if one.kind == record.COUNTER else value is None


def test_processes_of_one_host_keep_their_order(tmp_path: Path) -> None:
    """The wall clock may be set between their starts; the monotonic clock decides."""
    late = {"start": {"mono_ns": START_NS + 10, "wall_ns": WALL_NS - 10**12}}
    processes = [
        BuiltProcess([BuiltRecord(start=START_NS + 20)], pid=2, process=late),
        BuiltProcess([BuiltRecord(start=START_NS + 15)]),
    ]
    with run_of(tmp_path, *processes) as run:
        assert run.sql("SELECT pid, start_ns FROM events ORDER BY start_ns").fetchall() == [
            (1000, WALL_NS + 15),
            (2, WALL_NS + 20),
        ]
        assert run.sql("SELECT start_ns FROM processes WHERE pid = 2").fetchall() == [(WALL_NS + 10,)]


def test_hosts_have_clocks_of_their_own(tmp_path: Path) -> None:
    """Another host, or another boot of the same one, has its own offset."""
    other = {"start": {"mono_ns": 5, "wall_ns": WALL_NS}}
    with run_of(
        tmp_path, BuiltProcess([BuiltRecord(start=7)], host="b", process=other), BuiltProcess([BuiltRecord()])
    ) as run:
        assert run.sql("SELECT host, start_ns FROM events ORDER BY host").fetchall() == [
            ("b", WALL_NS + 2),
            ("testhost", WALL_NS),
        ]


def test_names_with_anything_in_them(tmp_path: Path) -> None:
    """Quotes, newlines, NUL, lone surrogates and other alphabets."""
    names = ["'; DROP TABLE events; --", 'a"b', "line\nbreak", "nul\0", "\ud800", "日本", ""]
    with run_of(tmp_path, BuiltProcess([BuiltRecord(name=name, cat=name) for name in names])) as run:
        found = [name for (name,) in run.sql("SELECT name FROM events ORDER BY seq").fetchall()]
    assert found == [*names[:4], "\\ud800", *names[5:]]


def test_a_record_with_an_unknown_name_is_kept(tmp_path: Path) -> None:
    """Its name is null, and a note says so."""
    run_folder = build_run(tmp_path / "run", [BuiltProcess([BuiltRecord(dur=3)])])
    (run_folder / "testhost-1000-0" / "names.jsonl").write_text("")
    with open_run(run_folder) as run:
        assert run.sql("SELECT name, cat, thread, dur_ns FROM events").fetchall() == [(None, None, None, 3)]
        assert run.notes == ["testhost-1000-0: names.jsonl lacks the names of 1 records"]


def test_drops_say_how_many_why_and_where(tmp_path: Path) -> None:
    """In total, by reason, by process, and in words."""
    with open_run(sample(tmp_path / "run")) as run:
        drops = run.drops
        assert run.sql("SELECT drops FROM processes WHERE pid = 12").fetchall() == [(4,)]
    assert (drops.total, drops.by_process, drops.args) == (4, {"testhost-12-0": 4}, 1)
    assert drops.by_reason == {"space": 3, "unknown": 1}
    assert str(drops).startswith("4 records lost: 3 could not be written: disk full")


def test_records_of_processes_without_a_folder_are_lost(tmp_path: Path) -> None:
    """A full disk: all that is left of them is a number in the run's own file."""
    folder = sample(tmp_path / "run")
    (folder / "usage").write_bytes((4096).to_bytes(8, "little") + (3000).to_bytes(8, "little"))
    with open_run(folder) as run:
        drops = run.drops
    assert (drops.total, drops.by_reason["space"]) == (3004, 3003)
    assert drops.by_process["processes that could not create their folder"] == 3000


@pytest.mark.parametrize("damage", ["rings", "rings and events.seg", "header"])
def test_what_nobody_can_count_is_not_nothing(tmp_path: Path, damage: str) -> None:
    """Which numbers were given out stands in the rings: without them it is not known what is missing, sealed or not."""
    folder = sample(tmp_path / "run")
    process = folder / "testhost-10-0"
    for name in damage.split(" and "):
        if name == "header":
            (process / "rings").write_bytes(bytes(5000))
        else:
            (process / name).unlink()
    for _ in range(2):
        with open_run(folder) as run:
            drops = run.drops
            assert run.sql("SELECT drops FROM processes WHERE pid = 10").fetchall() == [(None,)]
        assert (drops.uncounted, drops.total) == (("testhost-10-0",), 4)
        assert "; an unknown number of records were in files that are missing" in str(drops)
        seal(folder)


def test_records_without_rings_are_counted_by_their_file(tmp_path: Path) -> None:
    """Where records are written in blocks there are no rings; without the file there is nothing to count by."""
    built = BuiltProcess([BuiltRecord(dur=1)], spilled=1, process={"writes": "block"})
    folder = build_run(tmp_path / "run", [built])
    next(folder.glob("*/rings")).unlink()
    with open_run(folder) as run:
        assert str(run.drops) == "no records lost"
    next(folder.glob("*/events.seg")).unlink()
    with open_run(folder) as run:
        assert str(run.drops).startswith("an unknown number of records")


def test_no_drops_are_told_too(tmp_path: Path) -> None:
    """A clean run says so."""
    with run_of(tmp_path, BuiltProcess([BuiltRecord()])) as run:
        assert str(run.drops) == "no records lost"
        assert run.notes == []


def test_lazy_arguments_are_only_read_when_asked_for(tmp_path: Path) -> None:
    """Counting events does not touch args.bin; damage shows when they are read."""
    folder = build_run(tmp_path / "run", [BuiltProcess([BuiltRecord(args={"a": 1}), BuiltRecord(args={"b": "x"})])])
    args = folder / "testhost-1000-0" / "args.bin"
    args.write_bytes(args.read_bytes().replace(b'{"a": 1}', b'{"a": 1['))
    with open_run(folder) as run:
        assert run.sql("SELECT count(*) FROM events").fetchall() == [(2,)]
        assert run.notes == []
        assert run.sql("SELECT args->>'$.b' FROM events ORDER BY seq").fetchall() == [(None,), ("x",)]
        assert "args.bin is damaged" in run.notes[0]


# ── states ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def state_with(tmp_path: Path, **fields: object) -> str:
    with run_of(tmp_path, BuiltProcess([BuiltRecord()], process=fields)) as run:
        ((state,),) = run.sql("SELECT state FROM processes").fetchall()
        assert run.state == {"running": "recording"}.get(state, state)
        return str(state)


def test_a_process_that_said_goodbye_has_ended(tmp_path: Path) -> None:
    """Wherever it ran."""
    assert state_with(tmp_path) == "ended"


def test_a_process_that_is_there_runs(tmp_path: Path) -> None:
    """Same host, same boot, same pid, same start."""
    assert state_with(tmp_path, **running()) == "running"


@pytest.mark.parametrize(
    "other", [{"start_ticks": 1}, {"boot_id": "x"}, {"pid": 2**22 + 1}, {"pid": 2**40, "start_ticks": None}]
)
def test_a_process_that_is_not_there_died(tmp_path: Path, other: dict[str, object]) -> None:
    """Its id may belong to another process now."""
    assert state_with(tmp_path, **(running() | other)) == "died"


def test_without_start_ticks_the_pid_decides(tmp_path: Path) -> None:
    """Systems without /proc have no start ticks."""
    assert state_with(tmp_path, **(running() | {"start_ticks": None})) == "running"


def test_of_a_process_on_another_host_nothing_is_known(tmp_path: Path) -> None:
    """Unless it ended."""
    assert state_with(tmp_path, **(running() | {"host": "elsewhere"})) == "unknown"


def test_a_zombie_died(tmp_path: Path) -> None:
    """A killed child that nobody waited for does not run."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    fields = running(child.pid)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert state_with(tmp_path, **fields) == "died"
    child.communicate()


def test_a_worker_that_died_does_not_make_the_run_died(tmp_path: Path) -> None:
    """The processes that no other one started decide."""
    with open_run(sample(tmp_path / "run")) as run:
        assert sorted(run.sql("SELECT state FROM processes").fetchall()) == [("died",), ("ended",), ("ended",)]
    died = running() | {"start_ticks": 1, "pid": 11, "host": "testhost", "parent_pid": 10}
    processes = [BuiltProcess([BuiltRecord()], pid=10), BuiltProcess([BuiltRecord()], pid=11, process=died)]
    with open_run(build_run(tmp_path / "two", processes)) as run:
        assert run.state == "ended"


@pytest.mark.parametrize(("code", "state"), [(0, "ended"), (137, "died"), (1, "died"), (None, "died")])
def test_a_program_that_died_makes_the_run_died_though_its_launcher_ended(
    tmp_path: Path, code: int | None, state: str
) -> None:
    """Unless the launcher saw that all ended well, as after a restart of the ranks."""
    died = running() | {"start_ticks": 1, "pid": 11, "parent_pid": 10}
    started = {"role": "launcher", "program": 11, "program_exit": code, "host": died["host"]}
    processes = [
        BuiltProcess([BuiltRecord()], pid=10, process=started),
        BuiltProcess([BuiltRecord()], pid=11, process=died),
    ]
    with open_run(build_run(tmp_path / "run", processes)) as run:
        assert run.state == state


# ── finding runs ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_folder_of_runs_is_no_run(tmp_path: Path) -> None:
    """The message names one that is."""
    build_run(tmp_path / "sonde-runs" / "first", [])
    with pytest.raises(RunNotFound, match=r"is a folder of runs \(1\). Open one of them, such as .*first"):
        open_run(tmp_path / "sonde-runs")


def test_a_wrong_name_brings_the_nearest(tmp_path: Path) -> None:
    """And all that there are."""
    build_run(tmp_path / "train-1a2b", [])
    with pytest.raises(RunNotFound, match=r"Did you mean 'train-1a2b'\? Valid: train-1a2b"):
        open_run(tmp_path / "train-1a2c")


def test_a_process_folder_is_no_run(tmp_path: Path) -> None:
    """The message names the run."""
    folder = build_run(tmp_path / "run", [BuiltProcess([BuiltRecord()])])
    with pytest.raises(RunNotFound, match=r"one process of a run. Open the run: .*run\."):
        open_run(folder / "testhost-1000-0")


def test_other_things_are_no_runs(tmp_path: Path) -> None:
    """A file, an empty folder, a folder with other things, a path into nowhere."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "trained").mkdir()
    (tmp_path / "trained" / "run.json").write_text('{"verb": "train", "status": "completed"}')
    for path, text in (
        (tmp_path / "trained", "run.json was not written by Sonde"),
        (tmp_path / "file", "is a file"),
        (tmp_path / "empty", "the folder is empty"),
        (tmp_path / "a", "it has no run.json, but b"),
        (tmp_path / "none" / "b", "neither it nor its parent folder"),
        (tmp_path / "empty" / "x", "and no other runs in"),
    ):
        with pytest.raises(RunNotFound, match=text):
            open_run(path)


def test_a_run_without_run_json_is_still_a_run(tmp_path: Path) -> None:
    """Its process folders tell enough; a note says what is missing."""
    folder = sample(tmp_path / "run")
    (folder / "run.json").unlink()
    with open_run(folder) as run:
        assert run.name == run.id == "run"
        assert run.started == WALL_NS
        assert run.notes[0] == "run: run.json is missing"
        assert run.sql("SELECT count(*) FROM processes").fetchall() == [(3,)]


def test_a_run_without_records_has_empty_tables(tmp_path: Path) -> None:
    """Nothing was recorded yet."""
    with run_of(tmp_path) as run:
        assert run.table("events").fetchall() == run.table("processes").fetchall() == []
        assert (run.drops.total, run.state) == (0, "unknown")


def test_several_folders_are_one_run(tmp_path: Path) -> None:
    """Hosts that could not agree on one folder; equal names of processes stay apart."""
    paths = [build_run(tmp_path / name, [BuiltProcess([BuiltRecord(dur=number)])]) for number, name in enumerate("ab")]
    with open_run(paths) as run:
        assert run.sql("SELECT process, dur_ns FROM events ORDER BY 1").fetchall() == [
            ("a/testhost-1000-0", 0),
            ("b/testhost-1000-0", 1),
        ]


def test_an_unreadable_process_does_not_hide_the_others(tmp_path: Path) -> None:
    """It becomes a note."""
    folder = sample(tmp_path / "run")
    (folder / "bad-1-0").mkdir()
    (folder / "bad-1-0" / "args.bin").write_text("x")
    with open_run(folder) as run:
        assert run.sql("SELECT count(*) FROM processes").fetchall() == [(3,)]
        assert "bad-1-0: process.json is missing" in run.notes[0]


# ── asking ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_unknown_table_is_an_error_with_the_valid_ones(tmp_path: Path) -> None:
    """And the one that was meant."""
    with (
        run_of(tmp_path) as run,
        pytest.raises(UnknownName, match=r"'event'. Did you mean 'events'\? Valid: events, processes"),
    ):
        run.table("event")


def test_batches_give_all_rows(tmp_path: Path) -> None:
    """In lists of the size that was asked for."""
    with run_of(tmp_path, BuiltProcess([BuiltRecord() for _ in range(25)])) as run:
        assert [len(rows) for rows in run.batches("SELECT seq FROM events", 10)] == [10, 10, 5]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT * FROM read_text('{0}')", "SQL may only read the files of this run"),
        ("FROM glob('{0}*')", "SQL may only read the files of this run"),
        ("COPY (SELECT 1) TO '{0}2'", "not COPY"),
        ("WITH c AS (COPY (SELECT 1) TO '{0}2' (USE_TMP_FILE false)) FROM c", "not COPY"),
        ("WITH c AS (DELETE FROM process_rows RETURNING pid) FROM c", "not DELETE"),
        ("EXPLAIN ANALYZE COPY (SELECT 1) TO '{0}2'", "not EXPLAIN"),
        ("EXPORT DATABASE '{0}2'", "not EXPORT"),
        ("ATTACH '{0}2' AS other", "not ATTACH"),
        ("SET enable_external_access = true", "not SET"),
        ("PRAGMA enable_profiling", "not PRAGMA"),
        ("INSTALL httpfs", "not LOAD"),
        ("DROP VIEW processes", "not DROP"),
        ("SELECT 1; DROP VIEW processes", "Give one SELECT, not 2 statements"),
    ],
)
def test_sql_only_reads_and_only_the_run(tmp_path: Path, query: str, said: str) -> None:
    """A query from somewhere else reaches no other file and changes nothing; one sentence says what to do."""
    (tmp_path / "secret").write_text("x")
    with run_of(tmp_path) as run:
        with pytest.raises(QueryRefused, match=rf"{said}.*files=True"):
            run.sql(query.format(tmp_path / "secret"))
        assert run.table("processes").fetchall() == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "secret"]


def test_sql_cannot_overwrite_a_sealed_table(tmp_path: Path) -> None:
    """Not even one that it may read."""
    folder = sample(tmp_path / "run")
    seal(folder)
    table = folder / "parts" / f"{host()}-0000" / "beside.parquet"
    before = table.read_bytes()
    target = f"TO '{table}' (FORMAT parquet, USE_TMP_FILE false)"
    with open_run(folder) as run:
        for query in (f"COPY (SELECT 1 AS x) {target}", f"WITH c AS (COPY (SELECT 1 AS x) {target}) FROM c"):
            with pytest.raises(QueryRefused):
                run.sql(query)
        assert run.sql(f"SELECT count(*) > 0 FROM read_parquet('{table}')").fetchall() == [(True,)]
    assert table.read_bytes() == before


@pytest.mark.parametrize("name", ["events.parquet", "processes.parquet", "ledger.parquet"])
def test_sql_follows_no_link_in_place_of_a_table(tmp_path: Path, name: str) -> None:
    """A link in a run folder leads nowhere."""
    (tmp_path / "secret").write_text("x")
    folder = sample(tmp_path / "run")
    (folder / name).symlink_to(tmp_path / "secret")
    with open_run(folder) as run, pytest.raises(QueryRefused):
        run.sql(f"SELECT content FROM read_text('{folder}/{name}')")


@pytest.mark.parametrize(
    "query", ["FROM processes", "DESCRIBE steps", "SELECT 'events_node' AS \"type\"", "VALUES (1)"]
)
def test_sql_may_read_in_every_form(tmp_path: Path, query: str) -> None:
    """Whatever DuckDB takes for a SELECT."""
    with run_of(tmp_path, BuiltProcess([BuiltRecord()])) as run:
        assert run.sql(query).fetchall()


def test_sql_reads_other_files_if_allowed(tmp_path: Path) -> None:
    """The user may say so."""
    (tmp_path / "notes").write_text("x")
    with open_run(build_run(tmp_path / "run", []), files=True) as run:
        assert run.sql(f"SELECT content FROM read_text('{tmp_path}/notes')").fetchall() == [("x",)]


def test_refresh_sees_what_came_since(tmp_path: Path) -> None:
    """Until then a run stays as it was."""
    with run_of(tmp_path, BuiltProcess([BuiltRecord()])) as run:
        assert run.sql("SELECT count(*) FROM events").fetchall() == [(1,)]
        build_process(run.path, BuiltProcess([BuiltRecord()], pid=7))
        assert run.sql("SELECT count(*) FROM events").fetchall() == [(1,)]
        run.refresh()
        assert run.sql("SELECT count(*) FROM events").fetchall() == [(2,)]


def test_a_closed_run_opens_again(tmp_path: Path) -> None:
    """close() only lets go of memory."""
    run = run_of(tmp_path, BuiltProcess([BuiltRecord()]))
    run.close()
    assert run.sql("SELECT count(*) FROM events").fetchall() == [(1,)]
    run.close()
    run.close()


def test_what_a_run_says_of_itself(tmp_path: Path) -> None:
    """Name, state, number of processes and folder in its repr; size in bytes."""
    with open_run(sample(tmp_path / "run")) as run:
        assert repr(run) == f"<Run 'built' {run.state}, 3 processes, {tmp_path}/run>"
        assert run.size == sum(path.stat().st_size for path in run.path.rglob("*") if path.is_file())
        assert run.meta["command"] == ["python", "train.py"]


def test_progress_is_told(tmp_path: Path) -> None:
    """By process."""
    told: list[tuple[int, int]] = []
    with open_run(sample(tmp_path / "run"), progress=lambda done, total: told.append((done, total))) as run:
        run.table("events")
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_hundreds_of_processes_are_one_table(tmp_path: Path) -> None:
    """500 forks, all there."""
    processes = [BuiltProcess([BuiltRecord(dur=pid) for _ in range(3)], pid=pid) for pid in range(1, 501)]
    with run_of(tmp_path, *processes) as run:
        found = run.sql(
            "SELECT count(*), count(DISTINCT process), bool_and(dur_ns = pid), max(pid) FROM events"
        ).fetchall()
    assert found == [(1500, 500, True, 500)]


def test_reading_needs_neither_pandas_nor_pyarrow(tmp_path: Path) -> None:
    """Opening a run loads numpy and duckdb, and importing it loads neither."""
    folder = sample(tmp_path / "run")
    code = (
        "import sys, json; from sonde.analysis.run import open_run; from sonde.analysis import seal; from sonde.analysis.questions import names, spans\n"
        "before = {'numpy', 'duckdb'} & set(sys.modules)\n"
        f"run = open_run({str(folder)!r}); run.sql('SELECT * FROM events').fetchall()\n"
        "print(json.dumps([sorted(before), sorted({'pandas', 'pyarrow', 'torch'} & set(sys.modules))]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[], []]
    assert done.stderr == ""


def test_a_run_may_be_moved(tmp_path: Path) -> None:
    """Nothing in it depends on where it lies."""
    folder = sample(tmp_path / "run")
    shutil.move(folder, tmp_path / "it's moved")
    with open_run(tmp_path / "it's moved") as run:
        assert run.sql("SELECT max(last_ns) - min(start_ns) FROM processes WHERE pid = 10").fetchall() == [(20 * MS,)]
        assert host()


@pytest.mark.parametrize("sealed", [False, True])
def test_an_answer_outlives_its_run(tmp_path: Path, sealed: bool) -> None:
    """`open_run(path).sql(query).fetchall()` in one line, also with arguments and a further step in between."""
    path = build_run(tmp_path / "run", [BuiltProcess([BuiltRecord(args={"a": number}) for number in range(3)])])
    if sealed:
        seal(path)
    answer = open_run(path).sql("select args from events order by seq").limit(2)
    gc.collect()
    assert [json.loads(row[0]) for row in answer.fetchall()] == [{"a": 0}, {"a": 1}]


def test_a_query_that_needs_more_memory_writes_temporary_files_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is answered, and nothing is left behind."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    sorted_rows = "SELECT row_number() OVER (ORDER BY hash(range)) AS n FROM range(2000000)"
    with Run([build_run(tmp_path / "one")], threads=1, memory=40_000_000) as run:
        assert run.sql(f"SELECT max(n) FROM ({sorted_rows})").fetchall() == [(2_000_000,)]
    assert not list(place.iterdir())
