"""What state torch is in, in this thread: inside a backward pass, or being compiled; and what its compiler may read."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from sonde.hooks import finder
from sonde.hooks.torch import private
from sonde.native import points

native: Any = points  # None: C was not built
PYTHON = "__python_implementation__"  # where the compiler looks for it


def backward_test() -> Callable[[], bool]:
    """A function that says whether the calling thread is at work inside a backward pass, also as torch's own thread."""
    current = private.graph_task()
    return lambda: current() != -1


def compile_test() -> Callable[[], bool]:
    """The function that says whether torch.compile is reading the calling code; the compiler knows it, and folds it."""
    test: Callable[[], bool] = sys.modules["torch"].compiler.is_compiling
    return test


def reads_objects() -> bool:
    """Does torch.compile read an object that is no Python function in the place of `Module.__call__`? Older ones fail."""
    return bool(sys.modules["torch"].__version__ >= "2.10")


def readable(replacement: Any, original: Callable[..., Any]) -> Callable[[], None]:
    """Let torch.compile read the original where it meets this replacement, an object that is no Python function.

    The replacement must live as long as the process: the compiler knows it by its address. Returns what ends the wait for
    the compiler's import.
    """
    if getattr(replacement, PYTHON, None) is None:
        setattr(replacement, PYTHON, original)

    def register(compiler: ModuleType) -> None:
        private.read_instead(compiler, replacement)

    return finder.when_imported(private.COMPILER, register)


def functions_of(*modules: ModuleType) -> list[Callable[..., Any]]:
    """All functions and methods of these modules, for `unread`."""
    found: list[Any] = []
    for module in modules:
        parts = [one for one in vars(module).values() if getattr(one, "__module__", None) == module.__name__]
        parts += [inner for one in parts if isinstance(one, type) for inner in vars(one).values()]
        found += [one for one in parts if hasattr(one, "__code__")]
    return found


def unread(*functions: Callable[..., Any]) -> Callable[[], None]:
    """Let torch.compile pass over these functions, and those in them, where it meets their frames; what they call is read.

    For code that runs between modules of the program, which may have been compiled one by one. Returns what ends the wait
    for the compiler's import.
    """

    def register(compiler: ModuleType) -> None:
        for function in functions:
            code = function.__code__
            for each in (code, *(inner for inner in code.co_consts if isinstance(inner, type(code)))):
                private.pass_over(compiler, each)

    return finder.when_imported(private.COMPILER, register)
