"""Traces of other tools as runs: what is in the file is in the tables, whatever state it is in."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from starlette.testclient import TestClient

from sonde.analysis.run import open_run
from sonde.cli import main
from sonde.exchange import chrome, pfw
from sonde.exchange.imports.run import import_traces
from sonde.testing import build_training
from sonde.views.runs import list_runs
from sonde.web.app import make_app
from sonde.web.folder import RunsFolder

KERNEL = "void at::native::vectorized_elementwise_kernel<4, " + "x" * 600 + ">"


def invoke(*args: object) -> Result:
    return CliRunner().invoke(main, [str(one) for one in args])


def imported(folder: Path, *files: Path) -> Path:
    run = folder / "imported"
    answer = invoke("import", *files, "-o", run)
    assert answer.exit_code == 0, answer.output
    return run


def rows(run: Path, query: str) -> list[Any]:
    with open_run(run) as opened:
        return [tuple(row) for row in opened.sql(query).fetchall()]


def written(path: Path, trace: object) -> Path:
    text = json.dumps(trace).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def span(
    name: str, cat: str, ts: float, dur: float, pid: object = 7, tid: object = 7, **args: object
) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": cat, "ts": ts, "dur": dur, "pid": pid, "tid": tid, "args": args}


def profile(rank: int = 0, steps: int = 3) -> dict[str, Any]:
    """A small trace as torch.profiler writes it: each step is 1 ms, its kernel 0.25 ms."""
    events: list[dict[str, Any]] = []
    for step in range(steps):
        at = 1_700_000_000_000_000 + 1000 * step
        events += [
            span(f"ProfilerStep#{step + 5}", "user_annotation", at, 1000),
            span("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation", at, 100),
            span("## forward ##", "user_annotation", at + 100, 300),
            span("aten::mm", "cpu_op", at + 110, 50.125),
            span("## backward ##", "user_annotation", at + 400, 400),
            span("nccl:all_reduce", "user_annotation", at + 500, 100),
            span("Optimizer.step#SGD.step", "user_annotation", at + 800, 150),
            span(KERNEL, "kernel", at + 120, 250.5, pid=0, tid=20, device=0, stream=20),
            span("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", at + 90, 5, pid=0, tid=20),
            span("## forward ##", "gpu_user_annotation", at + 120, 260, pid=0, tid=20),
            {"ph": "s", "id": step, "name": "ac2g", "cat": "ac2g", "ts": at, "pid": 7, "tid": 7},
        ]
    events.append({"ph": "M", "name": "thread_name", "pid": 0, "tid": 20, "args": {"name": "stream 20"}})
    return {
        "schemaVersion": 1,
        "traceEvents": events,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2},
    }


def test_kernels_are_those_of_the_file(tmp_path: Path) -> None:
    """Counts and sums per kernel are what a plain reading of the JSON gives, on a thread of their device."""
    run = imported(tmp_path, written(tmp_path / "trace.json.gz", profile()))
    found = rows(run, "SELECT name, thread, count(*), sum(dur_ns) FROM events WHERE cat = 'kernel' GROUP BY ALL")
    assert found == [(KERNEL, "GPU 0 stream 20", 3, 3 * 250_500)]


def test_sums_are_those_of_a_plain_reading(tmp_path: Path) -> None:
    """Whatever a span is called in the run, times of each category are those of the JSON, to the nanosecond."""
    chance = random.Random(3)
    trace = profile(steps=40)
    for one in trace["traceEvents"]:
        one["ts"] = round(one.get("ts", 0) + chance.random(), 3)
        one["dur"] = round(one.get("dur", 0) * chance.random(), 3)
    run = imported(tmp_path, written(tmp_path / "trace.json", trace))
    plain: Counter[str] = Counter()
    for one in trace["traceEvents"]:
        plain[one["name"]] += round(one["dur"] * 1000) if one.get("cat") in ("kernel", "gpu_memcpy", "cpu_op") else 0
    found = rows(run, "SELECT name, sum(dur_ns) FROM events WHERE cat IN ('kernel', 'gpu_memcpy', 'cpu_op') GROUP BY 1")
    assert dict(found) == +plain


def test_steps_and_phases_are_those_of_the_annotations(tmp_path: Path) -> None:
    """ProfilerStep gives the steps, and the annotations of torch.profiler their phases."""
    run = imported(tmp_path, written(tmp_path / "trace.json", profile()))
    columns = "step, dur_ns, input_wait_ns, forward_ns, backward_ns, communication_ns, optimizer_ns"
    times = (1_000_000, 100_000, 300_000, 300_000, 100_000, 150_000)
    assert rows(run, f"SELECT {columns} FROM steps ORDER BY step") == [(step, *times) for step in (5, 6, 7)]
    device = rows(run, "SELECT DISTINCT device_ns FROM phases WHERE phase = 'forward'")
    assert device == [(260_000,)]


def test_a_phase_that_the_trace_does_not_mark_is_missing(tmp_path: Path) -> None:
    """With optimizer steps alone, nobody knows what the rest of a step was: no wait is inferred."""
    trace = profile()
    trace["traceEvents"] = [one for one in trace["traceEvents"] if one["name"].startswith(("Prof", "Optimizer"))]
    run = imported(tmp_path, written(tmp_path / "trace.json", trace))
    query = "SELECT dur_ns, input_wait_ns, forward_ns, optimizer_ns FROM steps"
    assert rows(run, query) == [(1_000_000, None, None, 150_000)] * 3


def test_passes_are_found_among_the_operators(tmp_path: Path) -> None:
    """Without annotations: what autograd evaluates is the backward pass, numbered operators before it the forward pass."""
    trace = profile()
    events = [one for one in trace["traceEvents"] if not one["name"].startswith("##")]
    for step in range(3):
        at = 1_700_000_000_000_000 + 1000 * step
        named = {"Sequence number": 3, "Fwd thread id": 1}
        events += [
            span("aten::stack", "cpu_op", at + 10, 50, **{"Sequence number": 1}),  # of the loader
            span("aten::linear", "cpu_op", at + 150, 50, **{"Sequence number": 2}),
            span("aten::loss", "cpu_op", at + 300, 50, **{"Sequence number": 3}),
            span("autograd::engine::evaluate_function: A", "cpu_op", at + 400, 100, tid=8, **named),
            span("autograd::engine::evaluate_function: B", "cpu_op", at + 600, 100, tid=8, **named),
        ]
    run = imported(tmp_path, written(tmp_path / "trace.json", trace | {"traceEvents": events}))
    found = rows(run, "SELECT input_wait_ns, forward_ns, backward_ns, communication_ns FROM steps")
    assert found == [(100_000, 200_000, 200_000, 100_000)] * 3
    assert rows(run, "SELECT DISTINCT args FROM events WHERE cat = 'compute' AND name = 'backward'") == [
        ('{"inferred":"from operators"}',)
    ]


def test_events_know_their_parent_and_their_step(tmp_path: Path) -> None:
    """What lies inside another span on the same thread is its child, whatever the order in the file."""
    trace = profile(steps=1)
    trace["traceEvents"].reverse()
    run = imported(tmp_path, written(tmp_path / "trace.json", trace))
    query = "SELECT p.name, e.depth, e.step FROM events e JOIN events p ON p.seq = e.parent WHERE e.name = 'aten::mm'"
    assert rows(run, query) == [("forward", 2, 5)]


def test_several_ranks_are_one_run(tmp_path: Path) -> None:
    """Each file is a process with its rank."""
    files = [written(tmp_path / f"rank-{rank}.json.gz", profile(rank)) for rank in (0, 1)]
    run = imported(tmp_path, *files)
    assert rows(run, "SELECT rank, world_size, role FROM processes ORDER BY rank") == [
        (0, 2, "trainer"),
        (1, 2, "trainer"),
    ]
    assert rows(run, "SELECT count(*) FROM steps") == [(6,)]


@pytest.mark.parametrize("command", [["report"], ["show"], ["tables"], ["query", "SELECT count(*) FROM events"]])
def test_every_reading_command_reads_it(tmp_path: Path, command: list[str]) -> None:
    """An imported run is a run."""
    run = imported(tmp_path, written(tmp_path / "trace.json", profile()))
    answer = invoke(command[0], run, *command[1:])
    assert answer.exit_code == 0, answer.output


def test_the_name_of_a_file_tells_its_rank_if_nothing_else_does(tmp_path: Path) -> None:
    """As with traces that were made before the process group was."""
    trace = {key: value for key, value in profile().items() if key != "distributedInfo"}
    files = [written(tmp_path / f"job_rank{rank}.json", trace) for rank in (0, 1)]
    assert rows(imported(tmp_path, *files), "SELECT rank, world_size FROM processes ORDER BY rank") == [(0, 2), (1, 2)]


def test_steps_of_a_trace_that_begins_late_are_no_warmup(tmp_path: Path) -> None:
    """ProfilerStep#5 is not one of the first three steps of its program."""
    run = imported(tmp_path, written(tmp_path / "trace.json", profile(steps=2)))
    assert rows(run, "SELECT warmup FROM steps") == [(False,), (False,)]


def test_a_report_says_what_the_trace_does_not_hold(tmp_path: Path) -> None:
    """Also that it was cut, and what to record instead."""
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(profile())[:-1500])
    run = tmp_path / "run"
    invoke("import", path, "-o", run)
    told = " ".join(invoke("report", run).output.split())
    for sentence in (
        "is truncated or damaged: only the events before that place were imported",
        "items and batches, losses, layers, host memory: the imported trace has none",
        "Import a trace of more steps.",
    ):
        assert sentence in told


def test_an_imported_run_is_compared(tmp_path: Path) -> None:
    """Its steps are those of any other run."""
    run = imported(tmp_path, written(tmp_path / "trace.json", profile(steps=15)))
    answer = invoke("compare", run, run)
    assert answer.exit_code == 0, answer.output
    assert "The median step takes 1.00 ms instead of 1.00 ms" in answer.output


def test_an_imported_run_is_served(tmp_path: Path) -> None:
    """Every page of the web server that an ordinary run has."""
    imported(tmp_path, written(tmp_path / "trace.json", profile(steps=15)))
    with TestClient(make_app(RunsFolder(tmp_path), "secret"), base_url="http://127.0.0.1:8700") as client:
        for path in ("", "/head", "/series?name=step,phases", "/steps", "/steps/0/6", "/lanes", "/timeline"):
            found = client.get(f"/api/runs/imported{path}", headers={"authorization": "Bearer secret"})
            assert found.status_code == 200, (path, found.text)


def test_begin_and_end_make_a_span(tmp_path: Path) -> None:
    """Chrome's B and E pairs, counters and marks; what did not end is open."""
    events = [
        {"ph": "B", "name": "outer", "ts": 1, "pid": 1, "tid": "main"},
        {"ph": "B", "name": "inner", "ts": 2.5, "pid": 1, "tid": "main"},
        {"ph": "E", "ts": 4, "pid": 1, "tid": "main"},
        {"ph": "C", "name": "memory", "ts": 4, "pid": 1, "tid": "main", "args": {"used": 3, "free": 4.5}},
        {"ph": "i", "name": "here", "ts": 5, "pid": 1, "tid": "main"},
        {"ph": "X", "name": "other", "ts": 5, "dur": 1, "pid": "gpu", "tid": 3},
    ]
    run = imported(tmp_path, written(tmp_path / "trace.json", events))
    assert rows(run, "SELECT kind, name, dur_ns, value, open FROM events ORDER BY kind, name") == [
        ("counter", "memory.free", None, 4.5, False),
        ("counter", "memory.used", None, 3.0, False),
        ("mark", "here", None, None, False),
        ("span", "inner", 1500, None, False),
        ("span", "other", 1000, None, False),
        ("span", "outer", None, None, True),
    ]
    assert rows(run, "SELECT count(*) FROM processes") == [(2,)]


def test_large_times_keep_their_nanoseconds(tmp_path: Path) -> None:
    """A float64 of microseconds since 1970 has no nanoseconds, the text of the file has."""
    path = tmp_path / "trace.json"
    path.write_text('[{"ph":"X","name":"a","ts":1712195495505543.257,"dur":0.25,"pid":1,"tid":1}]')
    run = imported(tmp_path, path)
    assert rows(run, "SELECT start_ns, dur_ns FROM events") == [(1_712_195_495_505_543_257, 250)]


def test_a_trace_without_a_date_begins_at_the_time_of_its_file(tmp_path: Path) -> None:
    """Its first event does, whatever number its clock had."""
    path = written(tmp_path / "trace.json", [span("b", "", 20_000_005, 1), span("a", "", 20_000_000, 1)])
    run = imported(tmp_path, path)
    began = path.stat().st_mtime_ns
    assert rows(run, "SELECT name, start_ns FROM events ORDER BY name") == [("a", began), ("b", began + 5000)]


def test_a_report_of_a_trace_without_steps_says_what_to_read_instead(tmp_path: Path) -> None:
    """As those of VizTracer: the table of functions."""
    run = imported(tmp_path, written(tmp_path / "trace.json", [span("main", "FEE", 1, 5)]))
    assert "`sonde show` lists where its time went." in " ".join(invoke("report", run).output.split())


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_truncated_file_gives_the_events_before_the_cut(tmp_path: Path, name: str) -> None:
    """The command says that the file is cut."""
    path = written(tmp_path / name, [span(f"work {number}", "a", number, 1) for number in range(5000)])
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    answer = invoke("import", path, "-o", tmp_path / "run")
    assert answer.exit_code == 0
    assert "trace.json" in answer.output
    assert "is truncated or damaged" in answer.output
    ((count,),) = rows(tmp_path / "run", "SELECT count(*) FROM events")
    assert 100 < count < 5000
    assert rows(tmp_path / "run", f"SELECT count(*) FROM events WHERE name = 'work {count - 1}'") == [(1,)]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"   \n", "is empty"),
        (b"hello", "is not a trace"),
        (bytes(100), "is not a trace"),
        (b"{}", "has no traceEvents"),
        (b'{"a": 1}', "has no traceEvents"),
        (b"[]", "has no events"),
        (b'{"traceEvents": []}', "has no events"),
        (b'[{"ph":"X","name":"a","ts":-1}]', "no events with a valid time"),
        (b'{"traceEvents": [{"ph":"X","na', "truncated, damaged or nested too deeply"),
        (b"[" * 100_000, "nested too deeply"),
        (b'[{"ph":"X","name":"a","ts":1,"dur":1,"args":' + b"[" * 100_000, "nested too deeply"),
        (b"\x1f\x8bgarbage", "is empty"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    """One sentence, exit code 1, and no run folder."""
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    answer = invoke("import", path, "-o", tmp_path / "run")
    assert answer.exit_code == 1
    assert reason in answer.output
    assert [one.name for one in tmp_path.iterdir()] == ["trace.json"]


def test_a_run_appears_when_it_is_complete(tmp_path: Path) -> None:
    """A killed import leaves no run of which half is missing."""
    path = written(tmp_path / "trace.json", [span("a", "b", number, 1) for number in range(50_000)])
    seen: list[int] = []

    def look(done: int, total: int) -> None:
        seen.append(len(list_runs(tmp_path / "runs").runs))

    run = import_traces([path], tmp_path / "runs", progress=look).path
    assert set(seen) == {0}
    assert [one.id for one in list_runs(tmp_path / "runs").runs] == [run.name]
    assert run.is_dir()


def test_a_folder_or_a_missing_file_is_refused(tmp_path: Path) -> None:
    """So is an output that exists."""
    path = written(tmp_path / "trace.json", [span("a", "b", 1, 1)])
    for args, reason in (
        ((tmp_path,), "is a folder"),
        ((tmp_path / "absent",), "No such file"),
        ((path, "-o", tmp_path), "exists"),
    ):
        answer = invoke("import", *args, *(() if "-o" in args else ("--dir", tmp_path / "runs")))
        assert (answer.exit_code, reason in answer.output) == (1, True), answer.output
    assert not list(tmp_path.glob("runs/*"))


def test_names_never_lead_out_of_the_run(tmp_path: Path) -> None:
    """Hosts, processes and threads of a hostile file are no paths."""
    evil = "../../evil"
    trace = {"schemaVersion": 1, "host_name": evil, "traceEvents": [span(evil, evil, 1, 1, pid=evil, tid=evil)]}
    run = imported(tmp_path, written(tmp_path / "trace.json", trace))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["imported", "trace.json"]
    assert rows(run, "SELECT name, cat FROM events") == [(evil, evil)]


SUMS = "SELECT cat, name, count(*), sum(dur_ns // 1000) FROM events WHERE kind = 'span' GROUP BY ALL ORDER BY ALL"


def test_a_chrome_export_comes_back(tmp_path: Path) -> None:
    """The same spans, sums and steps."""
    run = build_training(tmp_path / "run", ranks=2, steps=5, workers=1)
    with open_run(run) as opened:
        chrome.export(opened, tmp_path / "out.json")
    back = imported(tmp_path, tmp_path / "out.json")
    assert rows(back, SUMS) == rows(run, SUMS)
    steps = "SELECT rank, step, start_ns, dur_ns, forward_ns, input_wait_ns FROM steps ORDER BY ALL"
    assert rows(back, steps) == rows(run, steps)
    workers = "SELECT rank, role, worker FROM processes ORDER BY ALL"
    assert rows(back, workers) == rows(run, workers)


def test_a_pfw_export_comes_back(tmp_path: Path) -> None:
    """The same spans and sums; the probes' phases have the names of DFTracer's vocabulary."""
    run = build_training(tmp_path / "run", ranks=2, steps=5, workers=1)
    with open_run(run) as opened:
        pfw.export(opened, tmp_path / "out.pfw.gz", gzip=True)
    back = imported(tmp_path, tmp_path / "out.pfw.gz")
    known = {"forward": "compute.forward", "backward": "compute.backward", "optimizer": "compute.step"}
    known |= {"input_wait": "dataloader.fetch.iter", "item": "data.item"}
    expected = [(known.get(name, f"{cat}.{name}"), count, total) for cat, name, count, total in rows(run, SUMS)]
    assert sorted((f"{cat}.{name}", count, total) for cat, name, count, total in rows(back, SUMS)) == sorted(expected)


def test_both_dialects_of_dftracer_are_read(tmp_path: Path) -> None:
    """Letters with brackets, as the guide shows, and the numbers of version 2.2; a bad line is skipped."""
    about = '{"id":1,"name":"HH","cat":"dftracer","pid":9,"tid":9,"ph":PH,"args":{"hhash":"ab","name":"node7","value":"ab"}}'
    line = (
        '{"id":2,"name":"forward","cat":"compute","pid":9,"tid":9,"ts":1794769944584475,"dur":14,"ph":PH,'
        '"args":{"hhash":"ab","epoch":1,"step":3,"p_idx":0,"level":1,"size":5}}'
    )
    old = "[\n" + about.replace("PH", '"M"') + "\n" + line.replace("PH", '"X"') + "\n{bad\n]\n"
    new = about.replace("PH", "4") + "\n" + line.replace("PH", "1").replace('"cat"', '"type":6,"cat"') + "\n"
    for number, text in enumerate((old, new)):
        path = tmp_path / f"{number}.pfw"
        path.write_text(text)
        answer = invoke("import", path, "-o", tmp_path / f"run-{number}")
        assert ("1 line" in answer.output) == (number == 0), answer.output
        found = rows(tmp_path / f"run-{number}", "SELECT process, cat, name, dur_ns, epoch, step, args FROM events")
        assert found == [("node7-9-0", "compute", "forward", 14_000, 1, 3, '{"size":5}')]


@pytest.mark.parametrize("numbered", [True, False])
def test_steps_of_dftracer_end_with_its_optimizer_steps(tmp_path: Path, numbered: bool) -> None:
    """Its other events carry the number of the step before or after: it writes an iteration when its body has ended."""
    lines: list[dict[str, Any]] = [
        {
            "name": "CM",
            "cat": "dftracer",
            "type": 1,
            "pid": 9,
            "tid": 9,
            "ph": 4,
            "args": {"name": "time_metric", "value": "NS"},
        }
    ]
    for step in range(3):
        at, line = 1_795_001_763_102_988_000 + step * 10_000_000, {"type": 6, "pid": 9, "tid": 9, "ph": 1}
        for name, cat, ts, dur, told in (
            ("item", "data", 10_000, 60_000, step - 1),
            ("forward", "compute", 200_000, 4_000_000, step),
            ("backward", "compute", 4_300_000, 3_000_000, step),
            ("step", "compute", 7_400_000, 500_000, step),
            ("fetch.iter", "dataloader", 0, 83_000, step),
        ):
            args = {"hhash": "ab", "epoch": 1, "step": told + 40} if numbered else {}
            lines.append(line | {"name": name, "cat": cat, "ts": at + ts, "dur": dur, "args": args})
    path = tmp_path / "app.pfw"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = imported(tmp_path, path)
    columns = "step, epoch, input_wait_ns, forward_ns, backward_ns, optimizer_ns"
    first, epoch = (40, 1) if numbered else (0, None)
    assert rows(run, f"SELECT {columns} FROM steps ORDER BY step") == [
        (first + step, epoch, 83_000, 4_000_000, 3_000_000, 500_000) for step in range(3)
    ]


VIZTRACER = """
import threading, multiprocessing
def work(n):
    return [sum(range(50)) for _ in range(n)]
def child():
    work(20)
if __name__ == "__main__":
    thread = threading.Thread(target=work, args=(30,), name="aside")
    thread.start()
    work(40)
    thread.join()
    process = multiprocessing.Process(target=child)
    process.start()
    process.join()
"""


def test_a_trace_of_viztracer_has_its_functions(tmp_path: Path) -> None:
    """Two processes and a thread, as VizTracer itself writes them: the calls and times of each function."""
    (tmp_path / "program.py").write_text(VIZTRACER)
    viztracer = [sys.executable, "-m", "viztracer", "--log_gc", "-o", "out.json", "program.py"]
    subprocess.run(viztracer, cwd=tmp_path, check=True, timeout=120, capture_output=True)
    run = imported(tmp_path, tmp_path / "out.json")
    plain: dict[tuple[int, str], list[int]] = {}
    for one in json.loads((tmp_path / "out.json").read_text())["traceEvents"]:
        if one["ph"] == "X":
            called = plain.setdefault((one["pid"], one["name"]), [0, 0])
            called[0] += 1
            called[1] += round(one["dur"] * 1000)
    found = rows(run, "SELECT pid, name, count(*), sum(dur_ns) FROM events WHERE kind = 'span' GROUP BY ALL")
    assert {(pid, name): [count, total] for pid, name, count, total in found} == plain
    assert ("aside",) in rows(run, "SELECT DISTINCT thread FROM events")


def test_files_and_moments_of_dftracer_are_kept(tmp_path: Path) -> None:
    """A hash of a file becomes its name, a line of metadata with a time becomes a mark."""
    about = {"cat": "dftracer", "pid": 9, "tid": 9, "ph": 4}
    lines = [
        {"id": 1, "name": "FH", **about, "args": {"hhash": "ab", "name": "/data/x.bin", "value": "f0"}},
        {"id": 2, "name": "CM", **about, "args": {"hhash": "ab", "name": "epoch.start", "value": "1794769944584475"}},
        span("read", "POSIX", 1794769944584480, 5, pid=9, tid=9, fhash="f0", ret=4) | {"ph": 1, "type": 2},
    ]
    path = tmp_path / "app.pfw"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = imported(tmp_path, path)
    assert rows(run, "SELECT kind, name, start_ns, args FROM events ORDER BY start_ns") == [
        ("mark", "epoch.start", 1_794_769_944_584_475_000, None),
        ("span", "read", 1_794_769_944_584_480_000, '{"fhash":"f0","ret":4,"file":"/data/x.bin"}'),
    ]
