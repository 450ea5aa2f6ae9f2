"""The file that every Python below `sonde run` meets. What it does is tested with programs, in tests/integration."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

from sonde.launch.program import BOOT

FILE = Path(BOOT) / "sitecustomize.py"


def test_old_pythons_can_read_it() -> None:
    """Nothing in it is newer than Python 3.4, and Python 2 lacks annotations, f-strings and keyword-only arguments too."""
    tree = ast.parse(FILE.read_text(), feature_version=(3, 4))
    kinds = {type(node).__name__ for node in ast.walk(tree)}
    assert not kinds & {"JoinedStr", "AnnAssign", "NamedExpr", "AsyncFunctionDef", "Nonlocal", "Starred", "Match"}
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert functions
    assert all(function.returns is None and not function.args.kwonlyargs for function in functions)
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "__future__"]


def test_a_python_without_sonde_runs_as_if_it_were_not_there() -> None:
    """No output, no exception, and its path is clean."""
    code = "import sys; print('sonde' in sys.modules, [p for p in sys.path if 'boot' in p])"
    # Without site-packages there is no Sonde.
    hidden = "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p and not p.endswith('src')]"
    start = (
        f"{hidden}; sys.path.insert(0, {BOOT!r}); sys.modules.pop('sitecustomize', None); import sitecustomize; {code}"
    )
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SONDE_RUN")}
    done = subprocess.run(
        [sys.executable, "-S", "-c", start], capture_output=True, text=True, env=env, check=True, timeout=60
    )
    assert done.stdout.strip() == "False []"
    assert done.stderr == ""


def test_without_a_run_it_records_nothing(tmp_path: Path) -> None:
    """Somebody may have kept PYTHONPATH and dropped the rest."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SONDE")}
    places = os.pathsep.join([BOOT, str(Path(BOOT).parents[1])])
    code = "import sonde; print(sonde.session.current())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env | {"PYTHONPATH": places}, cwd=tmp_path,
        check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.strip() == "None"
    assert list(tmp_path.iterdir()) == []
