"""The DFTracer export, line by line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from sonde.analysis.run import open_run
from sonde.exchange import pfw
from sonde.store import record
from sonde.testing import START_NS, WALL_NS, BuiltProcess, BuiltRecord, build_run


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def lines(folder: Path, *records: BuiltRecord, **process: Any) -> list[dict[str, Any]]:
    run = build_run(folder / "run", [BuiltProcess(records, **process)])
    with open_run(run) as opened:
        count = pfw.export(opened, folder / "out.pfw")
    found = [json.loads(line, parse_constant=refuse) for line in (folder / "out.pfw").read_text("ascii").splitlines()]
    assert count == len(records)
    return found


def events(folder: Path, *records: BuiltRecord, **process: Any) -> list[dict[str, Any]]:
    return [line for line in lines(folder, *records, **process) if line["cat"] != "dftracer" or line["name"] == "CM"]


def test_a_span_has_the_fields_of_the_dialect(tmp_path: Path) -> None:
    """Exactly those of the guide's example, in its order."""
    spans = [
        BuiltRecord("epoch", "pipeline", start=START_NS + 1_500, dur=2_000_000),
        BuiltRecord(
            "epoch.block",
            "pipeline",
            start=START_NS + 2_000,
            dur=828_765_499,
            key=1,
            parent=1,
            depth=1,
            epoch=3,
            step=4,
        ),
    ]
    found = events(tmp_path, *spans, pid=77)[1]
    code = found["args"].pop("hhash")
    assert len(code) == 16
    assert list(found) == ["id", "name", "cat", "pid", "tid", "ts", "dur", "ph", "args"]
    assert found == {
        "id": 2, "name": "epoch.block", "cat": "pipeline", "pid": 77, "tid": 77, "ts": WALL_NS // 1000 + 2,
        "dur": 828_765, "ph": "X", "args": {"p_idx": 1, "level": 2, "epoch": 3, "step": 4, "count": "1"},
    }  # fmt: skip


def test_a_root_span_has_no_parent_and_level_one(tmp_path: Path) -> None:
    """Nothing above it: p_idx 0, level 1."""
    (found,) = events(tmp_path, BuiltRecord("forward", "compute", dur=5))
    assert (found["args"]["p_idx"], found["args"]["level"]) == (0, 1)


def test_a_child_never_reaches_beyond_its_parent(tmp_path: Path) -> None:
    """Rounding to microseconds keeps the nesting."""
    spans = [
        BuiltRecord("outer", start=START_NS + 900, dur=1_200),
        BuiltRecord("inner", start=START_NS + 999, dur=1_100, parent=1, depth=1),
    ]
    outer, inner = events(tmp_path, *spans)
    assert outer["ts"] <= inner["ts"]
    assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]


def test_metadata_marks_are_lines_of_their_own_kind(tmp_path: Path) -> None:
    """`start(metadata=True)` gives a CM line with the time as text."""
    (found,) = events(tmp_path, BuiltRecord("epoch.start", "pipeline", kind=record.MARK, flags=record.META, seq=6))
    found["args"].pop("hhash")
    assert found == {
        "id": 6, "name": "CM", "cat": "dftracer", "pid": 1000, "tid": 1000, "ph": "M",
        "args": {"name": "epoch.start", "value": str(WALL_NS // 1000)},
    }  # fmt: skip


def test_host_process_and_threads_come_first(tmp_path: Path) -> None:
    """HH says which hash stands for which host, PR what a process is, thread_name who a thread is."""
    found = lines(tmp_path, BuiltRecord(dur=1), host="node7", process={"rank": 3, "role": "trainer"})
    assert [(line["name"], line["args"]["name"]) for line in found[:3]] == [
        ("HH", "node7"), ("PR", "rank 3"), ("thread_name", "T1"),
    ]  # fmt: skip
    assert {line["ph"] for line in found[:3]} == {"M"}
    assert {line["args"]["hhash"] for line in found} == {found[0]["args"]["value"]}


def test_user_arguments_stand_beside_ours(tmp_path: Path) -> None:
    """Text, numbers and nested values pass; what JSON readers stumble over is text."""
    (found,) = events(tmp_path, BuiltRecord(dur=1, args={"path": 'a"\n', "big": 2**70, "x": 1.5, "on": True, "l": [1]}))
    assert {key: found["args"][key] for key in ("path", "big", "x", "on", "l")} == {
        "path": 'a"\n', "big": str(2**70), "x": 1.5, "on": True, "l": [1],
    }  # fmt: skip


def test_counters_marks_errors_and_open_spans_are_told(tmp_path: Path) -> None:
    """What the dialect has no form for keeps its meaning as an argument."""
    counter, mark, error, running = events(
        tmp_path,
        BuiltRecord("loss", kind=record.COUNTER, value=float("nan")),
        BuiltRecord("here", kind=record.MARK, start=START_NS + 1),
        BuiltRecord("bad", dur=1, flags=record.ERROR, start=START_NS + 2),
        BuiltRecord("hung", flags=record.OPEN, start=START_NS + 3),
        process={"end": None},
    )
    assert (counter["ph"], counter["args"]["value"]) == ("C", "NaN")
    assert (mark["ph"], mark["dur"], mark["args"]["mark"]) == ("X", 0, True)
    assert error["args"]["error"] is True
    assert running["args"]["open"] is True


@given(st.text(max_size=30), st.dictionaries(st.text(max_size=9), st.text(max_size=30) | st.integers(), max_size=4))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_line_is_json(tmp_path_factory: pytest.TempPathFactory, name: str, args: dict[str, object]) -> None:
    """Whatever names and arguments hold, each event is one line that a strict reader takes."""
    found = lines(tmp_path_factory.mktemp("any"), BuiltRecord(name, name, dur=1, args=args))
    assert len(found) == 4


def test_gzip_holds_the_same(tmp_path: Path) -> None:
    """A compressed export is the plain one, compressed."""
    with open_run(build_run(tmp_path / "run", [BuiltProcess([BuiltRecord(dur=1)])])) as opened:
        pfw.export(opened, tmp_path / "plain")
        pfw.export(opened, tmp_path / "packed", gzip=True)
    assert gzip.decompress((tmp_path / "packed").read_bytes()) == (tmp_path / "plain").read_bytes()


PROBED = ("forward", "backward", "optimizer", "input_wait", "item", "h2d", "checkpoint", "evaluation")


def test_what_the_probes_recorded_speaks_the_vocabulary(tmp_path: Path) -> None:
    """DFTracer's readers find their layers in a run of an unedited program."""
    spans = [BuiltRecord(name, "probe", start=START_NS + n, dur=1) for n, name in enumerate(PROBED)]
    spans.append(BuiltRecord("communication.all_reduce", "probe", start=START_NS + 100, dur=1))
    found = events(tmp_path, *spans, BuiltRecord("update", "probe", kind=record.MARK, start=START_NS + 200))
    assert [f"{line['cat']}.{line['name']}" for line in found] == [
        "compute.forward", "compute.backward", "compute.step", "dataloader.fetch.iter", "data.item", "device.transfer",
        "checkpoint.capture", "pipeline.evaluate", "comm.all_reduce", "probe.update",
    ]  # fmt: skip


def test_what_the_program_marks_itself_is_not_counted_twice(tmp_path: Path) -> None:
    """A process with events of its own for something keeps those of the probes apart."""
    spans = [
        BuiltRecord("forward", "compute", start=START_NS, dur=9),
        BuiltRecord("forward", "probe", start=START_NS + 1, dur=5, parent=1, depth=1),
        BuiltRecord("fetch.iter", "dataloader", start=START_NS + 20, dur=5),
        BuiltRecord("input_wait", "probe", start=START_NS + 21, dur=3, parent=3, depth=1),
        BuiltRecord("backward", "probe", start=START_NS + 30, dur=5),
    ]
    found = [f"{line['cat']}.{line['name']}" for line in events(tmp_path, *spans)]
    assert found == [
        "compute.forward",
        "probe.forward",
        "dataloader.fetch.iter",
        "probe.input_wait",
        "compute.backward",
    ]
