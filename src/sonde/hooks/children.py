"""Points where a program learns how its children ended, and where it asks them to end.

Every way of waiting for children, and of ending them that `subprocess` and `multiprocessing` have, comes through here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde.hooks.points import Point

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

REASON = "to note how child processes ended"
ASKING = "to know which child processes the program ended itself"
OF_MULTIPROCESSING = ("popen_fork", "popen_forkserver")


def _of_subprocess(module: ModuleType) -> Iterable[tuple[Any, str]]:
    return _there(module.Popen, "_handle_exitstatus")


def _of_multiprocessing(module: ModuleType) -> Iterable[tuple[Any, str]]:
    return _there(module.Popen, "poll")


def _asking_subprocess(module: ModuleType) -> Iterable[tuple[Any, str]]:
    return _there(module.Popen, "send_signal")


def _asking_multiprocessing(module: ModuleType) -> Iterable[tuple[Any, str]]:
    return _there(module.Popen, "_send_signal")


def _there(owner: Any, name: str) -> list[tuple[Any, str]]:
    return [(owner, name)] if name in vars(owner) else []


def _unended(args: tuple[Any, ...], _kwargs: dict[str, Any]) -> bool:
    return args[0].returncode is None


# The first argument of each is the child, with `pid`, and `returncode` once it has ended.
POINTS = (
    Point("subprocess.Popen", REASON, library="subprocess", find=_of_subprocess, wanted=_unended),
    *(
        Point(
            f"multiprocessing.{name}",
            REASON,
            library=f"multiprocessing.{name}",
            find=_of_multiprocessing,
            wanted=_unended,
        )
        for name in OF_MULTIPROCESSING
    ),
)
# The first argument of each is the child, the second the signal that it is sent.
SENDING = (
    Point("subprocess.Popen.send_signal", ASKING, library="subprocess", find=_asking_subprocess, wanted=_unended),
    *(
        Point(
            f"multiprocessing.{name}.send_signal",
            ASKING,
            library=f"multiprocessing.{name}",
            find=_asking_multiprocessing,
            wanted=_unended,
        )
        for name in OF_MULTIPROCESSING
    ),
)
