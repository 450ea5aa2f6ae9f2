"""Which core records: the setting decides, and a missing C core is told but harmless."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.events.harness import ROOT

SHOW = "from sonde.events import CORE_NOTE, core; print(core.KIND); print(CORE_NOTE)"
WITHOUT = "import sys; sys.modules['sonde.native._sonde'] = None\n"


def python(program: str, **env: str) -> subprocess.CompletedProcess[str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("SONDE")}
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**plain, "PYTHONPATH": str(ROOT / "src"), **env},
    )


def test_the_twin_can_be_asked_for() -> None:
    """SONDE_CORE=python gives the twin, and says why."""
    kind, note = python(SHOW, SONDE_CORE="python").stdout.splitlines()
    assert kind == "python"
    assert "SONDE_CORE" in note


def test_the_twin_stands_in_for_a_missing_c_core() -> None:
    """Without the C core the twin records, silently, and the note says why."""
    done = python(WITHOUT + SHOW)
    kind, note = done.stdout.splitlines()
    assert kind == "python"
    assert "was not built" in note
    assert done.stderr == ""


def test_a_missing_c_core_that_was_asked_for_is_told() -> None:
    """SONDE_CORE=c without a C core: a warning that says what to do, and the twin."""
    done = python(WITHOUT + SHOW, SONDE_CORE="c")
    assert done.stdout.splitlines()[0] == "python"
    assert done.stderr.count("\n") == 1
    assert "Reinstall Sonde with a C compiler" in done.stderr


def test_the_c_core_is_preferred(core_name: str) -> None:
    """If the C core is there it records, and there is nothing to say."""
    if core_name != "c":
        pytest.skip("about the C core")
    for wanted in ("c", "auto"):
        assert python(SHOW, SONDE_CORE=wanted).stdout.splitlines() == ["c", "None"]


def test_the_twin_is_light() -> None:
    """Loading the twin brings in nothing heavy."""
    heavy = ("asyncio", "inspect", "dataclasses", "logging", "tempfile", "subprocess", "socket", "ctypes", "numpy")
    program = f"import sys, sonde.events; print([name for name in {heavy!r} if name in sys.modules])"
    assert python(program, SONDE_CORE="python").stdout.strip() == "[]"


def test_both_cores_have_the_names_of_the_interface(core_name: str) -> None:
    """Everything that the stub declares for use is there."""
    import importlib

    from tests.events.conftest import MODULES

    core = importlib.import_module(MODULES[core_name])
    names = ["KIND", "Files", "Span", "Wrapped", "Life", "iterate", "counter", "mark", "set_context", "get_context", "begin", "end", "flush", "task_mode", "set_clock", "info", "layout"]  # fmt: skip
    assert [name for name in names if not hasattr(core, name)] == []
    assert core_name == core.KIND
