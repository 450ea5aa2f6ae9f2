"""`prepare_inputs` as a file of its own: what an exported model needs of the model's Python, without torch.

The source of the function is written with everything it uses: imports, constants, and other functions of the same module.
"""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
import subprocess
import sys
import textwrap
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FILE = "prepare_inputs.py"
NAME = "prepare_inputs"
OWN_DECORATORS = ("staticmethod", "classmethod", "trace_model_func", "trace_dataset_func", "trace_func")
LARGEST_ARRAY = 1 << 16  # bytes of an array that is written into the file
CHECK_SECONDS = 60
CHECK = """
import runpy, sys
runpy.run_path(sys.argv[1])
sys.exit(3 if "torch" in sys.modules else 0)
"""


# ── writing ──


def save_prepared(function: Callable[..., Any], path: Path) -> None:
    """Write `function` as a file that works without torch. Raises ExportError, with the reason, if it cannot."""
    path.write_text(source(function))
    done = subprocess.run(  # noqa: S603  the file that was just written
        [sys.executable, "-c", CHECK, str(path)], capture_output=True, text=True, timeout=CHECK_SECONDS, check=False
    )
    if done.returncode:
        path.unlink()
        said = done.stderr.strip().splitlines()
        why = "one of its imports imports torch" if done.returncode == 3 else (said[-1] if said else "it exited")
        raise ExportError(f"{_words(function)} does not work without torch: {why}. {ADVICE}")


ADVICE = "Use NumPy and plain Python in it, and import nothing that imports torch."


def source(function: Callable[..., Any]) -> str:
    """The text of the file."""
    plain = _plain(function)
    written = _Written(plain)
    written.add(plain, NAME)
    return written.text()


def _plain(function: Callable[..., Any]) -> FunctionType:
    found = inspect.unwrap(getattr(function, "__func__", function))
    if not isinstance(found, FunctionType) or found.__name__ == "<lambda>":
        raise ExportError(f"{_words(function)} is not defined with `def`, so it cannot be saved.")
    if found.__closure__:
        names = ", ".join(found.__code__.co_freevars)
        raise ExportError(
            f"{_words(function)} uses {names} of the enclosing function. Pass them as arguments or make them module "
            "constants."
        )
    return found


def _words(function: Any) -> str:
    return getattr(function, "__qualname__", repr(function))


class _Written:
    """The parts of the file, each before what uses it."""

    def __init__(self, first: FunctionType) -> None:
        self.first = first
        self.imports: list[str] = []
        self.parts: dict[str, str] = {}  # the name -> its text; empty while the text is being made

    def text(self) -> str:
        """The whole file."""
        head = f'"""{_words(self.first)}, as it was when the model was exported."""\n\nfrom __future__ import annotations\n'
        return "\n".join([head, *sorted(set(self.imports)), "", *self.parts.values(), ""])

    def add(self, function: FunctionType, name: str) -> None:
        """A function and all that it uses."""
        self.parts[name] = ""
        definition = _definition(function, name)
        for used in _used(definition):
            if used not in self.parts and used != function.__name__:
                self.need(used, function)
        self.parts[name] = self.parts.pop(name) or definition

    def need(self, name: str, function: FunctionType) -> None:
        """One name that a function uses and does not define."""
        if name not in function.__globals__:
            if not hasattr(builtins, name):
                raise ExportError(f"{_words(function)} uses {name}, which is not defined in its module.")
            return
        value = function.__globals__[name]
        if isinstance(value, ModuleType):
            self.imports.append(f"import {value.__name__} as {name}")
        elif isinstance(value, FunctionType) and value.__module__ == self.first.__module__:
            self.add(_plain(value), name)
        elif _importable(value, self.first):
            self.imports.append(f"from {value.__module__} import {value.__qualname__} as {name}")
        else:
            self.parts[name] = f"{name} = {self.constant(value, name)}\n"

    def constant(self, value: Any, name: str) -> str:
        """A value as Python text."""
        if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject and value.nbytes <= LARGEST_ARRAY:
            self.imports.append("import numpy")
            words = f"numpy.frombuffer(bytes.fromhex({value.tobytes().hex()!r}), {value.dtype.str!r})"
            return f"{words}.reshape({value.shape})"
        try:
            if ast.literal_eval(repr(value)) == value:
                return repr(value)
        except (ValueError, SyntaxError):
            pass
        raise ExportError(
            f"{_words(self.first)} uses {name} ({type(value).__name__}), which cannot be saved. Use functions of the "
            "same module, imported ones, plain constants and NumPy arrays."
        )


def _importable(value: Any, first: FunctionType) -> bool:
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    known = sys.modules.get(module) if isinstance(module, str) and module != first.__module__ else None
    return known is not None and name.isidentifier() and getattr(known, name, None) is value


def _definition(function: FunctionType, name: str) -> str:
    """The source of a function under a name, without decorators that mean nothing in the file."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError) as error:
        raise ExportError(
            f"Cannot find the source of {_words(function)} ({error}). Define it in a file or a notebook."
        ) from None
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        raise ExportError(f"{_words(function)} is not defined with `def`, so it cannot be saved.")
    definition.name = name
    definition.decorator_list = [one for one in definition.decorator_list if not _own(one)]
    _refuse_torch(definition, function)
    return ast.unparse(definition) + "\n"


def _own(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in OWN_DECORATORS


def _refuse_torch(definition: ast.FunctionDef, function: FunctionType) -> None:
    loaded = {
        name.name: name.name for node in ast.walk(definition) if isinstance(node, ast.Import) for name in node.names
    }
    loaded |= {
        node.module or "": node.module or "" for node in ast.walk(definition) if isinstance(node, ast.ImportFrom)
    }
    loaded |= {name: _home(function.__globals__.get(name)) for name in _used(ast.unparse(definition))}
    guilty = [name for name, home in loaded.items() if home.split(".")[0] == "torch"]
    if guilty:
        raise ExportError(
            f"{_words(function)} uses {guilty[0]} of torch, but an exported model runs without torch. {ADVICE}"
        )


def _home(value: Any) -> str:
    """The module that a value comes from."""
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return home if isinstance(home, str) else ""


def _used(text: str) -> list[str]:
    """The names that a text takes from its module, in order."""
    found: dict[str, None] = {}
    for code in _codes(compile(text, FILE, "exec", flags=_future(), dont_inherit=True)):
        for step in dis.get_instructions(code):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                found[step.argval] = None
    return list(found)


def _future() -> int:
    import __future__

    return __future__.annotations.compiler_flag


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


# ── reading ──


def load_prepared(path: Path) -> Callable[..., Any]:
    """The function in a file that `save_prepared` wrote. This runs the file, as an import would."""
    try:
        module = ModuleType("prepared")
        module.__file__ = str(path)
        exec(compile(path.read_text(), str(path), "exec"), module.__dict__)  # noqa: S102  it is code of the user's model
        function: Callable[..., Any] = getattr(module, NAME)
    except (OSError, SyntaxError, ImportError, AttributeError, NameError) as error:
        raise ExportError(f"Cannot use {path}: {type(error).__name__}: {error}. Export the model again.") from error
    return function
