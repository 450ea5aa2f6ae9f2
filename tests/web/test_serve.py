"""`sonde ui` as a process: a port, a token, a browser's request, Ctrl-C."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.web.growing import growing

from sonde.errors import SettingError
from sonde.testing import build_training
from sonde.web.serve import WebServer

SECONDS = 60  # for anything to happen, on a busy machine


def test_a_started_server_answers_with_its_token_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    """The printed address works; the exit is quiet."""
    build_training(tmp_path / "one", steps=12)
    line = [sys.executable, "-m", "sonde", "ui", str(tmp_path), "--no-open", "--token", "secret"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        found = re.search(r"(http://127\.0\.0\.1:\d+)/\?token=secret", server.stdout.readline())
        assert found
        request = urllib.request.Request(f"{found[1]}/api/runs", headers={"Authorization": "Bearer secret"})
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            assert [one["id"] for one in json.load(answer)["runs"]] == ["one"]
        server.send_signal(signal.SIGINT)
        server.wait(SECONDS)
        assert "Traceback" not in server.stderr.read()


def test_ctrl_c_is_quiet_while_a_page_follows_a_run(tmp_path: Path) -> None:
    """The stream that is cut off is no error."""
    line = [sys.executable, "-m", "sonde", "ui", str(tmp_path), "--no-open", "--token", "secret"]
    with (
        growing(tmp_path, 5) as program,
        subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server,
    ):
        assert server.stdout is not None
        assert server.stderr is not None
        found = re.search(r"http://127\.0\.0\.1:\d+", server.stdout.readline())
        assert found
        path = f"{found[0]}/api/runs/{program.id}/live"
        request = urllib.request.Request(path, headers={"Authorization": "Bearer secret"})
        with urllib.request.urlopen(request, timeout=60) as stream:
            assert stream.readline() == b"event: grown\n"
            server.send_signal(signal.SIGINT)
            server.wait(60)
        assert (server.returncode, server.stderr.read()) == (0, "")


def test_a_second_server_takes_the_next_port(tmp_path: Path) -> None:
    """Two on one folder do not stand in each other's way."""
    first, second = WebServer(tmp_path), WebServer(tmp_path)
    assert first.port != second.port
    with pytest.raises(SettingError, match="Choose another --port"):
        WebServer(tmp_path, port=first.port)
    first.close()
    second.close()
