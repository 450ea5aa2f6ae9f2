"""The page of a run in a process of its own: in a notebook, and beside a program that is watched."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from sonde.analysis.run import Run
from sonde.analysis.ui import RunPage
from sonde.errors import SondeError
from sonde.testing import build_training

SECONDS = 60  # for anything to happen, on a busy machine
PROGRAM = (
    "import sys, time\nwhile not __import__('pathlib').Path(sys.argv[1]).exists(): time.sleep(0.05)\nsys.exit(3)\n"
)


def about(address: str) -> object:
    """What the server says of itself, to whoever has the token."""
    host, _, token = address.partition("/runs/")[0], "", address.partition("token=")[2]
    request = urllib.request.Request(f"{host}/api/about", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return json.load(answer)["run"]


def is_gone(address: str) -> bool:
    """Whether nothing answers there any more, after a while."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        with suppress(urllib.error.HTTPError):
            try:
                about(address)
            except OSError:
                return True
        time.sleep(0.1)
    return False


def test_a_run_is_shown_in_a_cell_until_the_page_is_closed(tmp_path: Path) -> None:
    """The frame has the address with the token; `close` ends the server."""
    with Run([build_training(tmp_path / "one", steps=12)]) as run:
        page = run.ui(height=500)
    assert about(page.address) == "one"
    assert page.address in page._repr_html_()
    assert 'height="500"' in page._repr_html_()
    page.close()
    assert is_gone(page.address)


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    """The sentence of the command."""
    with pytest.raises(SondeError, match="none"):
        RunPage(tmp_path / "none")


def test_a_watched_program_keeps_its_exit_code_and_takes_the_page_with_it(tmp_path: Path) -> None:
    """The page is there while it runs; with the program ends the server, as nobody is at a terminal."""
    script, go = tmp_path / "wait.py", tmp_path / "go"
    script.write_text(PROGRAM)
    line = [sys.executable, "-m", "sonde", "watch", "--web", "--dir", str(tmp_path / "runs"), str(script), str(go)]
    environment = os.environ | {"BROWSER": "true"}
    with subprocess.Popen(line, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment) as watch:
        assert watch.stderr is not None
        found = re.search(r"http://\S+", watch.stderr.readline())
        assert found
        assert str(about(found[0])).endswith(tuple("0123456789abcdef"))
        go.touch()
        assert watch.wait(SECONDS) == 3
    assert is_gone(found[0])
