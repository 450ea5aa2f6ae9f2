"""`sonde show`, as text, as JSON, and on real terminals."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len

from sonde.analysis.seal import seal
from sonde.cli import main
from sonde.store import record
from sonde.store.folder import boot_id, host
from sonde.testing import START_NS, WALL_NS, BuiltProcess, BuiltRecord, build_run, build_training

SECOND = 1_000_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A training whose second worker was killed in an item."""
    spans = [BuiltRecord("forward", "compute", start=START_NS + n * SECOND, dur=SECOND // 3) for n in range(40)]
    spans += [BuiltRecord("backward", "compute", start=START_NS + n, dur=5, flags=record.ERROR) for n in range(3)]
    spans += [BuiltRecord("loss", "log", kind=record.COUNTER, start=START_NS + n, value=1 / (n + 1)) for n in range(3)]
    spans += [BuiltRecord("preprocess.with_a_long_derived_name\n\x1b[31m", "data", dur=7)]
    item = BuiltRecord("item", "data", start=START_NS, flags=record.OPEN, key=8412)
    facts = {"end": None, "boot_id": boot_id(), "start_ticks": 1, "rank": 0, "worker": 2, "signal": 9}
    worker = BuiltProcess([item], pid=4_000_000, host=host(), process=facts, next_seq=4, header={"lost_cap": 2})
    trainer = BuiltProcess(spans, pid=77, host=host(), process={"rank": 0, "boot_id": boot_id()})
    build_run(tmp_path / "20250101-000000-train-3f2a", [trainer, worker], name="train", command=["python", "train.py"])
    return tmp_path


def show(folder: Path, *args: str, width: int = 100) -> Result:
    return CliRunner().invoke(main, ["show", "--dir", str(folder), *args], env={"COLUMNS": str(width)})


def test_it_tells_the_whole_story(folder: Path) -> None:
    """What ran, who died in what, where the time went, what was lost."""
    text = show(folder).output
    for part in (
        "20250101-000000-train-3f2a",
        "python train.py",
        "rank 0 worker 2  4000000  died (signal 9)",
        "rank 0 worker 2 (pid 4000000, died): data.item for 39.3 s, item 8412",
        "compute.forward",
        "log.loss",
        "2 records dropped: the run was close to its size cap",
    ):
        assert part in text


def test_a_table_alone_is_that_of_the_newest_run(folder: Path) -> None:
    """One word that names a table needs no run before it."""
    newest = build_run(folder / "20250102-000000-later-0001", [BuiltProcess([BuiltRecord("late", dur=1)])])
    assert show(folder, "events").output == show(folder, newest.name, "events").output


def test_no_loss_is_said_too(tmp_path: Path) -> None:
    """Nothing lost is told in a quiet line."""
    build_run(tmp_path / "run", [BuiltProcess([BuiltRecord(dur=1)])])
    assert "No record was lost." in show(tmp_path).output


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_it_fits_the_terminal(folder: Path, width: int) -> None:
    """No line is wider than the terminal, and none holds a control character."""
    for args in ([], ["3f2a", "processes"]):
        lines = show(folder, *args, width=width).output.splitlines()
        assert all(line.isprintable() for line in lines)
        if not args:
            assert max(map(cell_len, lines)) <= width


def test_a_narrow_terminal_leaves_out_columns(folder: Path) -> None:
    """At 60 columns the quantiles go; the name, the count, the total and the share stay."""
    (header,) = [line for line in show(folder, width=60).output.splitlines() if line.strip().startswith("span")]
    assert header.split() == ["span", "count", "total", "of", "run", "errors"]
    (header,) = [line for line in show(folder, width=110).output.splitlines() if line.strip().startswith("span")]
    assert header.split() == ["span", "count", "total", "of", "run", "p50", "p95", "p99", "max", "errors"]


def test_json_is_the_same_view(folder: Path) -> None:
    """Numbers instead of words, and all names whatever the limit of the text is."""
    found = json.loads(show(folder, "--json").output)
    assert found["open"][0]["key"] == 8412
    assert found["names"][0]["total_ns"] == 40 * (SECOND // 3)
    assert found["drops"][0]["count"] == 2


def test_json_has_no_nan(tmp_path: Path) -> None:
    """A counter that went to NaN is told as text."""
    build_run(tmp_path / "run", [BuiltProcess([BuiltRecord("loss", kind=record.COUNTER, value=float("nan"))])])
    assert json.loads(show(tmp_path, "--json").output)["counters"][0]["last"] == "NaN"


def test_a_table_can_be_printed(folder: Path) -> None:
    """In the width that there is, with what has no room named below, and with a limit."""
    lines = show(folder, "3f2a", "events", "--limit", "4").output.splitlines()
    assert "name" in lines[0].split()
    assert max(map(len, lines)) <= 100
    assert any(line.lstrip().startswith("not shown: host, rank") for line in lines)
    assert "4 of 48 rows" in lines[-1]


def test_values_have_their_units(tmp_path: Path) -> None:
    """Bytes as sizes, shares in per cent; what the program counts itself stays a number."""
    counters = [("rss", "memory", 240_329_000.0), ("cpu", "system", 25.9), ("rss", "user", 240_329_000.0)]
    records = [BuiltRecord(name, cat, kind=record.COUNTER, value=value) for name, cat, value in counters]
    build_run(tmp_path / "run", [BuiltProcess(records)])
    text = show(tmp_path).output
    for part in ("240 MB", "25.9 %", "2.40329e+08"):
        assert part in text


def test_a_phase_is_listed_once(tmp_path: Path) -> None:
    """By the name that the program gave it, where the probes saw the same calls; others stay."""
    spans = [("forward", "compute"), ("forward", "probe"), ("backward", "probe")]
    records = [BuiltRecord(name, cat, start=n * SECOND, dur=5) for name, cat in spans for n in range(4)]
    build_run(tmp_path / "run", [BuiltProcess(records)])
    found = json.loads(show(tmp_path, "--json").output)["names"]
    assert sorted(one["label"] for one in found) == ["compute.forward", "probe.backward"]


def test_times_and_sizes_of_a_table_are_written_for_people(tmp_path: Path) -> None:
    """Durations and sizes with units, moments from the start of the run, what is not known as such."""
    build_training(tmp_path / "run", steps=2, rss=lambda rank, step: 123_000_000)
    lines = show(tmp_path, "run", "steps").output.splitlines()
    cells = dict(zip(lines[0].split(), lines[2].replace(" ms", "_ms").split(), strict=True))
    assert (cells["start"], cells["dur"], cells["forward"], cells["loss"]) == ("+12.0_ms", "12.0_ms", "3.00_ms", "n/a")
    assert "123 MB" in show(tmp_path, "run", "memory").output


def test_a_table_without_rows_says_so(tmp_path: Path) -> None:
    """Not an empty screen."""
    build_training(tmp_path / "run", steps=2)
    assert "no rows" in show(tmp_path, "run", "layers").output


def test_a_narrow_terminal_keeps_what_says_the_most(tmp_path: Path) -> None:
    """The step, its time and the phases."""
    build_training(tmp_path / "run", ranks=2, steps=5, loss=float)
    text = on_a_terminal(tmp_path, "run", "steps", COLUMNS="80", NO_COLOR="1")
    words = [re.sub(r"\x1b\[\d+m", "", word) for word in text.split()]
    assert words[:4] == ["rank", "step", "dur", "input_wait"]
    assert "not shown: host, pid" in text


def test_a_table_as_json_has_columns_and_rows(folder: Path) -> None:
    """For scripts."""
    found = json.loads(show(folder, "3f2a", "processes", "--json").output)
    assert len(found["rows"]) == found["total"] == 2
    assert "pid" in found["columns"]


def test_a_table_that_does_not_exist_is_a_usage_error_with_the_nearest_name(folder: Path) -> None:
    """Exit code 2, as for a wrong option."""
    found = show(folder, "3f2a", "step")
    assert found.exit_code == 2
    assert "Error: No table 'step'. Did you mean 'steps'? Valid: events, processes, steps," in found.output


@pytest.mark.parametrize("args", [["--sort", "colour"], ["--limit", "-1"], ["--limit", "many"]])
def test_wrong_options_are_usage_errors(folder: Path, args: list[str]) -> None:
    """Exit code 2."""
    assert show(folder, *args).exit_code == 2


def test_many_processes_are_summed_up(tmp_path: Path) -> None:
    """Of a hundred processes those that died are shown, and the others counted."""
    ended = [BuiltProcess([BuiltRecord(dur=1)], pid=n + 1, host=host()) for n in range(100)]
    facts = {"end": None, "boot_id": "another"}
    died = BuiltProcess([BuiltRecord("x", dur=1)], pid=500, host=host(), process=facts)
    build_run(tmp_path / "run", [*ended, died])
    text = show(tmp_path).output
    assert "101 PROCESSES" in text
    assert "died" in text
    assert "and 85 more that ended" in text


def on_a_terminal(folder: Path, *args: str, **environment: str) -> str:
    """What `sonde show` writes to a terminal."""
    master, slave = pty.openpty()
    environment = {"TERM": "xterm-256color", "PATH": os.environ["PATH"], **environment}
    environment |= {name: os.environ[name] for name in ("PYTHONPATH", "HOME") if name in os.environ}
    command = [sys.executable, "-m", "sonde", "show", "--dir", str(folder), *args]
    with subprocess.Popen(command, stdout=slave, stderr=subprocess.PIPE, env=environment) as process:
        os.close(slave)
        output = b""
        while piece := _read(master):
            output += piece
        process.wait(60)
    os.close(master)
    return output.decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the other end was closed
        return b""


def test_a_terminal_gets_colours_unless_it_wants_none(folder: Path) -> None:
    """NO_COLOR takes the colours away."""
    assert "\x1b[31m" in on_a_terminal(folder)
    assert "\x1b[31m" not in on_a_terminal(folder, NO_COLOR="1")


def test_a_run_that_is_being_recorded_can_be_shown(tmp_path: Path) -> None:
    """Open spans of a living process are told as well."""
    program = (
        "import sys, sonde\n"
        f"sonde.init('live', dir={str(tmp_path)!r}, enabled=True)\n"
        "with sonde.span('outer'), sonde.span('inner', key=5):\n"
        "    print('ready', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        text = show(tmp_path).output
        process.communicate(b"", timeout=60)
    assert f"main (pid {process.pid}, running): inner for " in text
    assert "key 5, in outer" in text


def test_the_start_of_a_run_is_told_in_local_time(folder: Path) -> None:
    """The wall clock of run.json, not of whoever reads."""
    assert str(json.loads(show(folder, "--json").output)["started_ns"]) == str(WALL_NS)


def test_a_word_that_is_nearly_a_table_brings_it(tmp_path: Path) -> None:
    """It may be meant for one of the newest run."""
    build_run(tmp_path / "first", [])
    result = CliRunner().invoke(main, ["show", "stepz", "--dir", str(tmp_path)])
    assert result.exit_code == 1
    assert result.output.rstrip().endswith("Or did you mean the table steps?")


@pytest.mark.filterwarnings("ignore::sonde.errors.IncompleteRun")
def test_a_note_that_is_a_sentence_ends_once(tmp_path: Path) -> None:
    """With one full stop."""
    path = build_training(tmp_path / "run", steps=5)
    seal(path)
    shutil.rmtree(next(path.glob("parts/*-0000")))
    text = " ".join(show(tmp_path, str(path)).output.split())
    assert "from a backup. " in f"{text} "
    assert ".." not in text.partition("Note:")[2]
