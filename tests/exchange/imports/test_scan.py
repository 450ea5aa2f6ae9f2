"""Trace files as they are found: pretty or packed, cut, damaged or hostile."""

from __future__ import annotations

import gzip
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sonde.errors import RunUnreadable
from sonde.exchange.imports import scan
from sonde.exchange.imports.decode import Event

MEMORY = 400 << 20  # bytes that a child may use


def event(number: int, **args: object) -> dict[str, Any]:
    return {"ph": "X", "name": f"größe 🚀 {number}", "cat": "a", "ts": number + 0.125, "dur": 12.5, "args": args}


def scanned(path: Path) -> tuple[list[Event], scan.Scan]:
    found = scan.Scan(path, lambda done: None)
    return [one for batch in found.batches() for one in batch], found


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize("size", [1, 7, 64, 5000])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_file_is_read_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, indent: int | None
) -> None:
    """The events are the same, wherever a piece ends: in a number, a name or a character."""
    monkeypatch.setattr(scan, "CHUNK", size)
    monkeypatch.setattr(scan, "SMALL", min(size, 4096))
    events = [event(number) for number in range(60)]
    trace = {"a": {"b": [1, 2]}, "traceEvents": events, "c": 12}
    found, about = scanned(written(tmp_path / "trace.json", json.dumps(trace, ensure_ascii=False, indent=indent)))
    assert [(one.name, bytes(one.ts)) for one in found] == [(one["name"], str(one["ts"]).encode()) for one in events]
    assert (about.about, about.problems) == ({"a": {"b": [1, 2]}, "c": 12}, [])


def test_objects_inside_of_events_are_no_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is a text that looks like the end of one."""
    monkeypatch.setattr(scan, "CHUNK", 8192)
    events = [event(number, inner=[{"ph": "X"}, {"ph": "X"}] * 50, text='}, {"') for number in range(40)]
    found, _ = scanned(written(tmp_path / "trace.json", json.dumps(events)))
    assert [one.arguments() for one in found] == [one["args"] for one in events]


def test_what_only_python_takes_for_json_is_read_too(tmp_path: Path) -> None:
    """NaN, which other tools write, and names that are not UTF-8."""
    events: list[Any] = [event(number) for number in range(300)]
    events[100]["args"] = {"loss": float("nan")}
    text = json.dumps(events).encode().replace(b"\\ud83d\\ude80 200", b"\xff 200")
    found, about = scanned(written(tmp_path / "trace.json", text))
    assert len(found) == 300
    assert about.problems == []
    assert found[100].arguments() == {"loss": "NaN"}
    assert "\N{REPLACEMENT CHARACTER} 200" in found[200].name


@pytest.mark.parametrize("place", [0.1, 0.5, 0.99])
def test_damage_in_the_middle_gives_what_is_before(tmp_path: Path, place: float) -> None:
    """Nothing after it is guessed at, and a sentence says so."""
    text = json.dumps([event(number) for number in range(3000)]).encode()
    cut = int(len(text) * place)
    found, about = scanned(written(tmp_path / "trace.json", text[:cut] + b'"\x00}{' + text[cut:]))
    assert len(found) == text[:cut].count(b'"args"') or len(found) == text[:cut].count(b'"ph"') - 1
    assert len(about.problems) == 1
    assert "truncated or damaged" in about.problems[0]


def test_bad_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    """DFTracer does not escape what it writes; each line is read by itself."""
    lines = [json.dumps(event(number)) for number in range(500)]
    lines[100] = lines[100].replace("12.5", '"a"b"')
    lines[400] = lines[400][:40]
    found, about = scanned(written(tmp_path / "app.pfw", "[\n" + "\n".join(lines) + "\n]\n"))
    assert len(found) == 498
    assert [problem.partition(": ")[2] for problem in about.problems] == [
        "2 lines are not valid JSON and were skipped."
    ]


BOMBS = {
    "a gzip file of zeros": "gzip_of(b'[', bytes(2**20))",
    "a gzip file of blanks": "gzip_of(b'', b' ' * 2**20)",
    "a gzip file of commas between two events": 'gzip_of(b\'[{"ph":"X","name":"a","ts":1},\', b\',\' * 2**20)',
    "a line of 10 GB": 'sparse(\'app.pfw\', b\'{"ph":"X","name":"a","ts":1}\\n{"ph":"\', 10 * 2**30)',
    "a name of 10 GB": 'sparse(\'trace.json\', b\'[{"ph":"X","name":"\', 10 * 2**30)',
    "10,000 arrays in each other": 'plain(b\'[{"ph":"X","name":"a","ts":1,"args":\' + b\'[\' * 10_000 + b\']\' * 10_000 + b\'}]\')',
    "10,000 objects beside the events": "plain(b'{\"a\":' * 10_000 + b'1' + b'}' * 10_000)",
}
READ = """
import sys, zlib
from pathlib import Path
folder = Path(sys.argv[1])

def gzip_of(begin, piece):
    packed = zlib.compressobj(1, zlib.DEFLATED, 31)
    with open(folder / "trace.json.gz", "wb") as file:
        file.write(packed.compress(begin))
        for _ in range(64):
            file.write(packed.compress(piece))
        file.write(packed.flush())
    return folder / "trace.json.gz"

def sparse(name, begin, size):
    with open(folder / name, "wb") as file:
        file.write(begin)
        file.truncate(size)
    return folder / name

def plain(text):
    (folder / "trace.json").write_bytes(text)
    return folder / "trace.json"

path = eval(sys.argv[2])
from sonde.exchange.imports.run import import_traces
from sonde.errors import RunUnreadable
try:
    found = import_traces([path], folder / "runs")
    print("imported", found.events, *found.problems)
except RunUnreadable as error:
    print("refused", error)
"""


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_hostile_file_costs_little_memory_and_leaves_nothing(tmp_path: Path, bomb: str) -> None:
    """One sentence says what is wrong; the run folder has what is good, or is not there."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))

    done = subprocess.run(
        [sys.executable, "-c", READ, tmp_path, BOMBS[bomb]],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
        preexec_fn=limit,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.strip().splitlines()) == 1
    assert done.stdout.startswith("imported 1 ") or done.stdout.startswith("refused ")
    runs = list((tmp_path / "runs").glob("*"))
    assert len(runs) == done.stdout.startswith("imported")


def test_a_gzip_file_that_grows_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if it is made of events."""
    monkeypatch.setattr(scan, "UNPACKED", 1 << 16)
    line = json.dumps(event(1) | {"name": "x" * 3000}).encode() + b"\n"
    path = written(tmp_path / "app.pfw.gz", gzip.compress(line * 2000))
    with pytest.raises(RunUnreadable, match="unpacks to over 500 times its size"):
        scanned(path)
