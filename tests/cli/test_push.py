"""`sonde push`, `sonde pull`, `sonde run --push` and URLs in place of runs, as typed in a shell."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import sonde
from sonde.testing import build_training

PATIENCE = 120
WORK = """
import sys, time, sonde
for number in range(int(sys.argv[1])):
    with sonde.span("work"):
        time.sleep(0.01)
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a program, and a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "work.py").write_text(WORK)
    return tmp_path


def command(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "sonde", *words], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def works(run: str | Path) -> int:
    """How many spans of the program a run has."""
    with sonde.open_run(run) as opened:
        return int(opened.sql("SELECT count(*) FROM events WHERE name = 'work'").fetchall()[0][0])


def test_push_then_read_by_url(here: Path) -> None:
    """Push, list, report and query by URL; the copy is named, and a pull puts it where it is wanted."""
    build_training(here / "sonde-runs" / "20260101-000000-train-1a2b", steps=20)
    url = f"file://{here}/bucket"
    pushed = command("push", "1a2b", url)
    assert f"to {url}/20260101-000000-train-1a2b" in pushed.stdout
    assert "Nothing new" in command("push", "1a2b", url).stdout
    assert "20260101-000000-train-1a2b" in command("runs", url).stdout
    asked = command("query", f"{url}/20260101-000000-train-1a2b", "SELECT count(*) AS n FROM steps", "--json")
    assert json.loads(asked.stdout) == [{"n": 20}]
    assert f"the copy is {here}/cache/sonde/runs/" in asked.stderr
    assert "fetched" in command("pull", f"{url}/20260101-000000-train-1a2b", "copies").stdout
    assert (here / "copies" / "20260101-000000-train-1a2b" / "run.json").exists()


def test_delete_only_after_everything_was_read_back(here: Path) -> None:
    """The local run goes, and the URL answers as it did."""
    run = build_training(here / "sonde-runs" / "train", steps=20)
    assert "Deleted" in command("push", "train", f"file://{here}/bucket", "--delete").stdout
    assert not run.exists()
    with sonde.open_run(f"file://{here}/bucket/train") as opened:
        assert opened.sql("SELECT count(*) FROM steps").fetchall() == [(20,)]


def test_a_run_that_may_be_running_is_not_deleted(here: Path) -> None:
    """Nobody here knows whether the host of a process without an end still writes."""
    run = build_training(here / "sonde-runs" / "train", steps=5, killed=True)
    assert "was not deleted" in command("push", "train", f"file://{here}/bucket", "--delete", code=1).stderr
    assert run.exists()


@pytest.mark.parametrize("code", [0, 7])
def test_run_pushes_at_the_end_whatever_the_end_is(here: Path, code: int) -> None:
    """The exit code is that of the program, and the URL has every span."""
    url = f"file://{here}/bucket"
    done = command("run", "-q", "--push", url, "--id", "job", "work.py", "5", str(code), code=code)
    assert done.stderr == ""
    assert works(f"{url}/job") == 5


def test_run_pushes_while_the_program_runs(here: Path) -> None:
    """After a second the run is at its URL, although the program has not ended; after a kill of the launcher it gets the rest."""
    url = f"file://{here}/bucket"
    words = ("run", "--push", url, "--push-every", "1", "--id", "job", "work.py", "100000", "0")
    launcher = subprocess.Popen([sys.executable, "-m", "sonde", *words], stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: (here / "bucket" / "job").exists() and bool(list(here.glob("bucket/job/*/manifest.json"))))
        wait_for(lambda: bool(mains(here)))  # the launcher is pushed before the program records
        launcher.kill()
        launcher.wait()
        (info,) = mains(here)
        os.kill(info["pid"], signal.SIGKILL)
        (run,) = (here / "sonde-runs").iterdir()
        wait_for(lambda: works(f"{url}/job") == works(run))
    finally:
        launcher.kill()
        launcher.wait()


def mains(here: Path) -> list[dict[str, Any]]:
    """What the program says of itself."""
    found = [json.loads(path.read_text()) for path in here.glob("sonde-runs/*/*/process.json")]
    return [one for one in found if one["role"] == "main"]


def wait_for(done: object) -> None:
    """Until this is so."""
    assert callable(done)
    until = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < until
        time.sleep(0.2)


def test_a_store_that_is_away_costs_the_program_nothing(here: Path) -> None:
    """The program runs, ends with its own code, and the message says how to push later."""
    (here / "bucket").write_text("a file where a folder should be")
    env = os.environ | {"SONDE_TEST": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _IMPATIENT, "run", "--push", f"file://{here}/bucket", "work.py", "3", "5"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env=env,
    )
    assert done.returncode == 5
    assert "not pushed: Cannot" in done.stderr
    assert "Push the rest with: sonde push" in done.stderr
    assert "Traceback" not in done.stderr


# The launcher starts `python -m sonde push`, which would try for a minute.
_IMPATIENT = """
import os, sys
spawn = os.posix_spawn
def impatient(path, line, env, **more):
    program = "import sys; from sonde.cli.live import pushloop; pushloop.LAST_SECONDS = 0.0; pushloop.main(*sys.argv[1:])"
    return spawn(path, [line[0], "-c", program, *line[4:]] if "sonde.cli.live.pushloop" in line else line, env, **more)
os.posix_spawn = impatient
from sonde.cli import main
main()
"""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("push", "train", "bucket"), "is not a URL. For a folder, use: file://"),
        (("pull", "bucket"), "is not a URL"),
        (("runs", "bucket"), "For a folder, use: sonde runs --dir bucket"),
        (("run", "--push", "bucket", "work.py"), "is not a URL. For a folder, use: --push file://"),
        (("run", "--id", "x", "work.py"), "Give the URL with --push"),
        (("seal", "file:///tmp/x"), "Fetch the run first: sonde pull file:///tmp/x"),
        (("rm", "file:///tmp/x"), "Fetch the run first"),
    ],
)
def test_wrong_usage_is_one_sentence(words: tuple[str, ...], said: str) -> None:
    """Exit code 2, and what to type instead."""
    assert said in " ".join(command(*words, code=2).stderr.split())


def test_an_empty_place_has_no_runs(here: Path) -> None:
    """Exit code 1, as for an empty folder; and no run is found at a URL where there is none."""
    said = command("runs", f"file://{here}/nothing", code=1).stdout
    assert said == f"No runs in file://{here}/nothing. Push one with: sonde push RUN file://{here}/nothing\n"
    assert "No run at file://" in command("report", f"file://{here}/nothing/x", code=1).stderr
