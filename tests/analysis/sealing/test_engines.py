"""Where parts are sealed makes no difference to them."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from sonde.analysis.parts import partition as plan_module
from sonde.analysis.parts.manifest import manifest_of
from sonde.analysis.seal import seal
from sonde.analysis.sealing import engines
from sonde.analysis.sealing.engines import in_pool
from sonde.errors import RunBusy
from sonde.testing import build_training


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of three parts."""
    monkeypatch.setattr(plan_module, "EVENTS", 1)
    return build_training(tmp_path / "run", ranks=3, steps=20, workers=1)


def digests(folder: Path) -> dict[str, str]:
    found = json.loads(manifest_of(folder).read_text())
    return {name: one["digest"] for name, one in found["parts"].items()}


def test_a_pool_writes_the_files_that_a_loop_writes(run: Path, tmp_path: Path) -> None:
    """Byte by byte, by the digests."""
    copy = tmp_path / "copy" / "run"
    shutil.copytree(run, copy)
    seal(run)
    told: list[tuple[int, int]] = []
    seal(copy, engine=in_pool(2), progress=lambda *one: told.append(one))
    assert digests(copy) == digests(run)
    assert len(digests(run)) == 3
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_one_core_needs_no_other_process(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool is a loop then."""
    monkeypatch.setattr(engines, "cores", lambda: 1)
    monkeypatch.setattr(engines, "_in_processes", lambda *_: pytest.fail("a process was started"))
    assert seal(run, engine=in_pool()).processes == 6


def die(*_: object) -> list[str]:
    """What a worker does for which there is no memory."""
    os.kill(os.getpid(), signal.SIGKILL)
    return []


def test_workers_that_are_killed_again_and_again_are_an_error_in_words(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records are as they were, and sealing can be done again."""
    with monkeypatch.context() as patch:
        patch.setattr(engines, "seal_part", die)
        with pytest.raises(RunBusy, match=r"killed 2 times.*Seal again with --workers 1"):
            seal(run, engine=in_pool(2))
    assert len(list(run.glob("*/events.seg"))) == 6
    assert seal(run).processes == 6
