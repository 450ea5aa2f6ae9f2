"""The rules of the house that no linter knows: read from the sources, without importing them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "sonde"
VAGUE = {"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"}
# The others hand what they catch to the user.
MAY_CATCH_ALL = ("guard.py", "capture/decorate.py", "events/decorate.py", "diagnosis/custom/rules.py")
# These load much that most of their users do without, or a library that may be missing.
MAY_IMPORT_LATE = (
    "analysis/live/run.py",
    "cli/ui.py",  # the web libraries are an extra
    "cli/watch.py",
    "launch/program.py",
    "pipeline/registry.py",  # models load torch
    "pytest_plugin.py",
    "session.py",
    "trackers/tracker.py",  # each loads its library
    "values/registry.py",
)
LOGGERS = {
    "sonde.integrations.lightning",
    "sonde.integrations.huggingface",
}  # named in a message, which says what to install
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}

Modules = dict[Path, list[ast.AST]]


@pytest.fixture(scope="module")
def modules() -> Modules:
    """The syntax tree of each module, node by node."""
    paths = sorted(SOURCE.rglob("*.py"))
    found = {path.relative_to(SOURCE): list(ast.walk(ast.parse(path.read_text(), str(path)))) for path in paths}
    assert {Path("config.py"), Path("guard.py"), Path("events/recorder.py")} <= found.keys()
    return found


def broad(handler: ast.ExceptHandler) -> bool:
    """Does this handler catch everything?"""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or getattr(kind, "id", "") in ("Exception", "BaseException") for kind in kinds)


def reraises(handler: ast.ExceptHandler) -> bool:
    """Does this handler end by raising what it caught?"""
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def names_environment(nodes: list[ast.AST]) -> set[str]:
    """The words for the environment that a module uses."""
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    imported = {n.name for node in nodes if isinstance(node, ast.ImportFrom) for n in node.names}
    return (used | imported) & ENVIRONMENT


def looks_up_own(nodes: list[ast.AST]) -> bool:
    """Does a module import modules by name, and hold the name of one of our own?"""
    names = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    ours = [name for name in names if re.match(r"sonde\.\w+", name) and name.split(":")[0] not in LOGGERS]
    used = {getattr(node, "attr", getattr(node, "id", "")) for node in nodes}
    return bool(ours) and bool(used & {"import_module", "__import__"} or looks_up_ours(nodes))


def looks_up_ours(nodes: list[ast.AST]) -> bool:
    """`sys.modules["sonde..."]` or `.get("sonde...")`."""
    texts = [ast.unparse(node) for node in nodes if isinstance(node, ast.Subscript | ast.Call)]
    return any(re.match(r"sys\.modules(\.get\(|\[)['\"]sonde", text) for text in texts)


def late_imports(nodes: list[ast.AST]) -> list[int]:
    """The lines of imports of our own inside functions; the screen may be late, since it loads Textual."""
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inside = {node for function in functions for node in ast.walk(function)}
    froms = [node for node in inside if isinstance(node, ast.ImportFrom)]
    plain = [node for node in inside if isinstance(node, ast.Import)]
    screens = {node.lineno for node in froms if (node.module or "").startswith("sonde.tui")}
    late = [node.lineno for node in froms if node.level or (node.module or "").split(".")[0] == "sonde"]
    late = [line for line in late if line not in screens]
    return late + [node.lineno for node in plain if any(name.name.split(".")[0] == "sonde" for name in node.names)]


def test_first_line_of_a_module_says_what_it_is_for(modules: Modules) -> None:
    """Each module begins with a sentence."""
    texts = {path: ast.get_docstring(nodes[0]) for path, nodes in modules.items() if isinstance(nodes[0], ast.Module)}
    assert texts.keys() == modules.keys()
    bad = [path for path, text in texts.items() if not text or not text.splitlines()[0].endswith((".", ":", ";", ","))]
    assert not bad


def test_module_has_one_plain_word_for_its_name(modules: Modules) -> None:
    """No two-word names, no names that say nothing."""
    folders = ("__init__", "__main__")
    plugin = "pytest_plugin"  # as plugins of pytest are called
    names = {path: path.parent.name if path.stem in folders else path.stem for path in modules}
    assert not [path for path, name in names.items() if name != plugin and ("_" in name.strip("_") or name in VAGUE)]


def test_the_name_of_a_public_class_stands_once(modules: Modules) -> None:
    """No two classes share a name, except those that users of another tool know, a twin, and a callback per framework."""
    known = {"SondeCallback", "Span", "TraceCall", "TraceContext", "TraceResult", "TraceStage"}
    names = [node.name for nodes in modules.values() for node in nodes if isinstance(node, ast.ClassDef)]
    public = [name for name in names if not name.startswith("_") and name not in known]
    assert sorted(public) == sorted(set(public))


def test_environment_is_read_in_one_module_only(modules: Modules) -> None:
    """One module knows the environment."""
    found = {path: names_environment(nodes) for path, nodes in modules.items() if path.name != "environment.py"}
    assert not {path: names for path, names in found.items() if names}


def test_failures_are_swallowed_in_guard_only(modules: Modules) -> None:
    """Elsewhere a handler names what it catches, or raises it again."""
    handlers = {
        path: [node for node in nodes if isinstance(node, ast.ExceptHandler)]
        for path, nodes in modules.items()
        if str(path) not in MAY_CATCH_ALL
    }
    found = {path: [h.lineno for h in kept if broad(h) and not reraises(h)] for path, kept in handlers.items()}
    assert not {path: lines for path, lines in found.items() if lines}


def test_own_modules_are_imported_at_the_top(modules: Modules) -> None:
    """An import of our own inside a function would hide a circle."""
    found = {path: late_imports(nodes) for path, nodes in modules.items() if path.as_posix() not in MAY_IMPORT_LATE}
    assert not {path: lines for path, lines in found.items() if lines}


def test_own_modules_are_looked_up_by_name_in_the_facades_only(modules: Modules) -> None:
    """Elsewhere a module that is imported by its name, or taken out of `sys.modules`, would hide a circle."""
    facades = {"__init__.py", "flow.py", "cli/__init__.py"}
    found = {path.as_posix() for path, nodes in modules.items() if looks_up_own(nodes)}
    assert found <= facades


def test_headers_of_python_are_included_in_one_place() -> None:
    """`abi.h` mends what newer headers do wrong for Python 3.11, which loads the same binary."""
    sources = [path for end in ("*.c", "*.h") for path in (SOURCE / "native").rglob(end)]
    assert [path.name for path in sources if "<Python.h>" in path.read_text()] == ["abi.h"]


def test_tests_that_the_makefile_names_are_there() -> None:
    """Pytest runs nothing at all if one of its paths is missing."""
    root = SOURCE.parent.parent
    named = set(re.findall(r"\btests/[\w/]+(?:\.py)?", (root / "Makefile").read_text()))
    assert "tests/events" in named
    assert [path for path in sorted(named) if not (root / path).exists()] == []
