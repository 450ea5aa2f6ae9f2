"""Runs small programs in processes of their own, and reads what they recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.integration.launching import finished

import sonde

SOURCE = str(Path(sonde.__file__).parents[1])
TIMEOUT = 120


class Programs:
    """Programs that record into one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.dir = folder / "runs"

    def start(
        self, code: str, *arguments: str, env: dict[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        """Start a program; it finds sonde, and its runs go to `dir`."""
        script = self.folder / "program.py"
        draft = self.folder / "program.draft"
        draft.write_text(textwrap.dedent(code))
        draft.replace(script)  # whole at any moment: a program started before may be about to read it
        return subprocess.Popen(
            [sys.executable, str(script), *arguments],
            env=self.environment(env),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def run(
        self, code: str, *arguments: str, env: dict[str, str] | None = None, code_expected: int = 0, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end, and check its exit code."""
        return finished(self.start(code, *arguments, env=env, **options), code_expected, TIMEOUT)

    def environment(self, more: dict[str, str] | None) -> dict[str, str]:
        """The environment of this process without what would steer a recording, and with `more`."""
        steering = ("SONDE", "RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM", "TORCHELASTIC", "MASTER_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(steering)}
        core = {"SONDE_CORE": os.environ["SONDE_CORE"]} if "SONDE_CORE" in os.environ else {}
        return kept | core | {"SONDE_DIR": str(self.dir), "PYTHONPATH": SOURCE} | (more or {})

    @property
    def runs(self) -> list[Path]:
        """The run folders."""
        return [path for path in self.dir.iterdir() if (path / "run.json").exists()] if self.dir.exists() else []

    @property
    def only(self) -> Path:
        """The one run folder."""
        (run,) = self.runs
        return run

    @property
    def processes(self) -> list[dict[str, Any]]:
        """What stands in the process.json files of the one run, in the order of their start."""
        found = [json.loads(path.read_text()) for path in self.only.glob("*/process.json")]
        return sorted(found, key=lambda facts: int(facts["start"]["mono_ns"]))

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The answer of the one run to a query."""
        with sonde.open_run(self.only) as run:
            return list(run.sql(query).fetchall())


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    """A place for programs and their runs."""
    return Programs(tmp_path)
