"""The rules of the house that no linter knows: read from the sources, without importing them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "sonde"
MODULES = sorted(SOURCE.rglob("*.py"))
VAGUE = {"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"}
MAY_CATCH_ALL = ("guard.py", "decorate.py")  # the latter hands what it catches to the user's generator
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}


def parsed(path: Path) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(path.read_text(), str(path))


def broad(handler: ast.ExceptHandler) -> bool:
    """Does this handler catch everything?"""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or getattr(kind, "id", "") in ("Exception", "BaseException") for kind in kinds)


def reraises(handler: ast.ExceptHandler) -> bool:
    """Does this handler end by raising what it caught?"""
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


modules = pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))


@modules
def test_first_line_of_a_module_says_what_it_is_for(path: Path) -> None:
    """Each module begins with a sentence."""
    text = ast.get_docstring(parsed(path))
    assert text, f"{path} has no docstring"
    assert text.splitlines()[0].endswith((".", ":", ";", ","))


@modules
def test_module_has_one_plain_word_for_its_name(path: Path) -> None:
    """No two-word names, no names that say nothing."""
    name = path.parent.name if path.stem in ("__init__", "__main__") else path.stem
    assert "_" not in name.lstrip("_")
    assert name not in VAGUE


@modules
def test_environment_is_read_in_config_only(path: Path) -> None:
    """One module knows the environment."""
    used = {node.attr for node in ast.walk(parsed(path)) if isinstance(node, ast.Attribute)}
    imported = {n.name for node in ast.walk(parsed(path)) if isinstance(node, ast.ImportFrom) for n in node.names}
    assert path.name == "config.py" or not (used | imported) & ENVIRONMENT


@modules
def test_failures_are_swallowed_in_guard_only(path: Path) -> None:
    """Elsewhere a handler names what it catches, or raises it again."""
    handlers = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.ExceptHandler)]
    assert path.name in MAY_CATCH_ALL or not [h.lineno for h in handlers if broad(h) and not reraises(h)]


@modules
def test_own_modules_are_imported_at_the_top(path: Path) -> None:
    """An import of our own inside a function would hide a circle."""
    functions = [n for n in ast.walk(parsed(path)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    inside = [node for function in functions for node in ast.walk(function)]
    late = [n.lineno for n in inside if isinstance(n, ast.ImportFrom) and (n.module or "").split(".")[0] == "sonde"]
    late += [
        n.lineno for n in inside if isinstance(n, ast.Import) and any(a.name.split(".")[0] == "sonde" for a in n.names)
    ]
    late += [n.lineno for n in inside if isinstance(n, ast.ImportFrom) and n.level]
    assert not late
