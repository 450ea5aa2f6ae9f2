"""The one extension: its parts, their stubs, their arguments, and what is there without it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sonde import native

FOLDER = Path(native.__file__).parent
SOURCES = FOLDER.parent
built = pytest.mark.skipif(native.MISSING is not None, reason="the C parts were not built")


def python(program: str) -> str:
    """What a program prints in a process of its own, in which nothing of Sonde is set."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("SONDE")}
    env = {**plain, "PYTHONPATH": str(SOURCES.parent)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60, env=env
    )
    return done.stdout.strip()


def stub(part: str) -> dict[str, ast.AST]:
    """The public functions and classes that the stub of a part names."""
    body = ast.parse((FOLDER / f"{part}.pyi").read_text()).body
    return {one.name: one for one in body if isinstance(one, ast.FunctionDef | ast.ClassDef) and one.name[0] != "_"}


@built
@pytest.mark.parametrize("part", native.PARTS)
def test_every_function_of_a_part_is_in_its_stub(part: str) -> None:
    """A part has no public function that its stub does not name, and the other way round."""
    made = {name for name, one in vars(getattr(native, part)).items() if name[0] != "_" and callable(one)}
    named = stub(part)
    assert made <= named.keys()
    assert {name for name, one in named.items() if isinstance(one, ast.FunctionDef)} <= made


@built
def test_a_missing_argument_is_named() -> None:
    """What a part takes by name it asks for by name."""
    from sonde.native import points

    made: Any = points.blocks
    with pytest.raises(TypeError, match="takes 8 keyword arguments"):
        made(state=[False])
    given = dict.fromkeys(["state", "enter", "leave", "span", "ended", "aborted", "slow_enter", "other"])
    with pytest.raises(TypeError, match="missing argument: slow_exit"):
        made(**given)


def test_without_the_extension_each_part_is_none() -> None:
    """Sonde is imported all the same, and says why there is no C."""
    program = "import sys; sys.modules['sonde.native._sonde'] = None; from sonde import native\n"
    shown = python(program + "print({getattr(native, one) for one in native.PARTS}, native.MISSING)")
    assert shown == "{None} the C core was not built when Sonde was installed"


def test_one_module_asks_whether_c_was_built() -> None:
    """The extension is named by `native/__init__.py` alone."""
    naming = [path for path in SOURCES.rglob("*.py") if "native._sonde" in path.read_text()]
    assert naming == [FOLDER / "__init__.py"]
