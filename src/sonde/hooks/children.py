"""Points where a program learns how its children ended, and where it asks them to end.

Every way of waiting for children, and of ending them that `subprocess` and `multiprocessing` have, comes through here.
"""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

from sonde.hooks.points import Point

REASON = "to note how child processes ended"
ASKING = "to know which child processes the program ended itself"


def _points(reason: str, of_subprocess: str, of_multiprocessing: str) -> tuple[Point, ...]:
    """A point for each class that stands for a child, at the method of this name."""
    methods = {
        "subprocess": of_subprocess,
        "multiprocessing.popen_fork": of_multiprocessing,
        "multiprocessing.popen_forkserver": of_multiprocessing,
    }
    return tuple(
        Point(f"{library}.Popen.{method}", reason, library=library, find=partial(_there, method), wanted=_unended)
        for library, method in methods.items()
    )


def _there(method: str, module: ModuleType) -> list[tuple[Any, str]]:
    return [(module.Popen, method)] if method in vars(module.Popen) else []


def _unended(args: tuple[Any, ...], _kwargs: dict[str, Any]) -> bool:
    return args[0].returncode is None


# The first argument of each is the child, with `pid`, and `returncode` once it has ended.
POINTS = _points(REASON, "_handle_exitstatus", "poll")
# In the child itself: all that it is for. An exception that leaves it ends the child.
RUNNING = Point(
    "multiprocessing.Process.run",
    "to note the exception that ends a child process",
    library="multiprocessing.process",
    find=lambda module: [(module.BaseProcess, "run")],
)
# The first argument of each is the child, the second the signal that it is sent.
SENDING = _points(ASKING, "send_signal", "_send_signal")
