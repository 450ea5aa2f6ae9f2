"""The public API: what docs/reference/api.md promises is what there is. `make docs` writes the block of names again."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
import typing
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "api.md"
BEGIN, END = "<!-- names: begin -->\n```text\n", "```\n<!-- names: end -->\n"
MODULES = ("sonde", "sonde.flow", "sonde.testing", "sonde.compat.dftracer")
MADE_BY_US = (
    "sonde.Run",
    "sonde.Session",
    "sonde.flow.Capture",
    "sonde.flow.Tracing",
)  # a user gets one from a function: how it is made is no promise
BETWEEN_US = ("adopt", "part", "shared", "stamp", "wrap")  # used between our own modules: no promise either
SPECIAL = ("__call__", "__enter__", "__exit__", "__iter__", "__len__")


class Plain:
    """An annotation that prints without quotes."""

    def __init__(self, annotation: object) -> None:
        written = annotation.__forward_arg__ if isinstance(annotation, typing.ForwardRef) else annotation
        self.text = written if isinstance(written, str) else inspect.formatannotation(written)

    def __repr__(self) -> str:
        return self.text


def signatures(function: typing.Any) -> list[str]:
    """The ways to call a function: its overloads, or itself."""
    forms = typing.get_overloads(function) if inspect.isfunction(function) else []
    return [signature(form) for form in forms or [function]]


def signature(function: typing.Any) -> str:
    """The signature without `self` and without quotes."""
    found = inspect.signature(function)
    kept = [
        p.replace(annotation=plain(p.annotation)) for p in found.parameters.values() if p.name not in ("self", "cls")
    ]
    text = str(found.replace(parameters=kept, return_annotation=plain(found.return_annotation)))
    return re.sub(r"<[^<>]* at 0x[0-9a-f]+>", "...", text)


def plain(annotation: object) -> object:
    """The annotation, printable; nothing stays nothing."""
    return annotation if annotation is inspect.Signature.empty else Plain(annotation)


def described(path: str, thing: object) -> list[str]:
    """The lines for one public name."""
    if isinstance(thing, type) and issubclass(thing, BaseException):
        return [f"{path}({', '.join(base.__name__ for base in thing.__bases__)})"]
    if isinstance(thing, type):
        thing = written(thing)
        return [f"class {path}{'' if path in MADE_BY_US else signature(thing)}", *members(thing)]
    if inspect.isroutine(thing):
        return [f"{path}{form}" for form in signatures(thing)]
    if path == "sonde.ai":
        return [f"{path}: {type(thing).__name__}", *(f"    .{row}" for row in vocabulary()), *members(type(thing))]
    return [f"{path}: {type(thing).__name__}"]


def written(kind: type) -> type:
    """The class as it stands in Python: what is quicker in C has a twin there, with complete signatures."""
    boundary = importlib.import_module("sonde.probes.tracestep")
    if boundary.Fast is boundary.Block or boundary.Fast not in kind.__bases__:
        return kind
    return type(kind.__name__, (boundary.Block,), dict(vars(kind)))


def vocabulary() -> list[str]:
    """The places of the tree."""
    table = importlib.import_module("sonde.ai.vocabulary").TABLE
    return [row.path for row in table]


def members(kind: type) -> list[str]:
    """The lines for the public members of a class, its inherited ones included."""
    owners = [owner for owner in kind.__mro__ if owner.__module__.startswith("sonde")]
    found = {name: owner for owner in reversed(owners) for name in vars(owner)}
    names = [name for name in sorted(found) if (not name.startswith("_") or name in SPECIAL) and name not in BETWEEN_US]
    return [f"    {line}" for name in names for line in member(name, inspect.getattr_static(kind, name))]


def member(name: str, thing: object) -> list[str]:
    """The lines for one member of a class."""
    if isinstance(thing, property):
        return [f".{name}: {Plain(inspect.signature(typing.cast('typing.Any', thing.fget)).return_annotation)}"]
    if isinstance(thing, staticmethod | classmethod):
        return [f".{name}{form}" for form in signatures(thing.__func__)]
    if inspect.isroutine(thing) and not inspect.isdatadescriptor(thing):
        return [f".{name}{form}" for form in signatures(thing)]
    return [f".{name}"]


def names() -> str:
    """Every public name with its signature, one on a line."""
    lines: list[str] = []
    for path in MODULES:
        module = importlib.import_module(path)
        for name in sorted(module.__all__):
            lines += described(f"{path}.{name}", getattr(module, name))
        lines.append("")
    return "\n".join(lines)


def printed(core: str) -> str:
    """The block of names in a process with this core: signatures of C functions are not as complete."""
    command = [sys.executable, __file__, "--print"]
    return subprocess.check_output(command, text=True, env={**os.environ, "SONDE_CORE": core}, timeout=120)


def test_page_holds_the_public_names() -> None:
    """What the page lists is what can be imported and how it is called; a change of it is a decision, not an accident."""
    block = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    assert printed("python") == block


def test_public_names_are_the_intended_ones() -> None:
    """The top level is small, and every name of it is there."""
    sonde = importlib.import_module("sonde")
    expected = {
        "Pipeline",
        "Run",
        "Session",
        "SondeError",
        "__version__",
        "ai",
        "counter",
        "finish",
        "flow",
        "init",
        "log",
        "log_items",
        "mark",
        "open_run",
        "pipeline",
        "report",
        "should_stop",
        "span",
        "summary",
        "trace_model_instance",
        "trace_step",
        "wrap_backward",
        "wrap_dataloader",
        "wrap_forward",
        "wrap_h2d",
        "wrap_optimizer",
    }
    assert set(sonde.__all__) == expected
    assert set(dir(sonde)) >= expected


if __name__ == "__main__":
    if "--print" in sys.argv:
        sys.stdout.write(names())
    else:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}{printed('python')}{END}{rest.partition(END)[2]}")
