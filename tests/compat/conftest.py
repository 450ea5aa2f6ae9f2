"""Runs programs that use DFTracer's names, each in a process and a folder of its own, and reads their `.pfw` file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Program = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """`program(text)` runs the text and returns the lines of `trace.pfw` in its folder (none: no such file).

    `pfw` names another file, `code` the exit code that is expected, and further keywords are environment variables.
    """

    def run(text: str, pfw: str = "trace.pfw", code: int = 0, **env: str) -> list[dict[str, Any]]:
        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(text))
        known = {key: value for key, value in os.environ.items() if not key.startswith(("SONDE", "DFTRACER"))}
        known |= {key: os.environ[key] for key in ("SONDE_CORE",) if key in os.environ}
        environment = known | {"DFTRACER_ENABLE": "1"} | env
        done = subprocess.run(
            [sys.executable, str(path)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, done.stderr
        found = tmp_path / pfw
        return [json.loads(line) for line in found.read_text().splitlines()] if found.exists() else []

    return run
