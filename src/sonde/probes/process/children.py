"""How the children of this process ended: only their parent, such as torchrun, learns it."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from sonde import config
from sonde.events import core
from sonde.events.recorder import serving
from sonde.hooks.children import POINTS, RUNNING, SENDING
from sonde.store.folder import host
from sonde.store.probe import EXIT, EXIT_BY, PARENT, PROCESS
from sonde.store.record import ESSENTIAL
from sonde.weak import WeakTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings


def install(_settings: Settings) -> Callable[[], None]:
    """Note the ends of children from now on."""
    ends = [point.subscribe(_follower) for point in POINTS]
    ends += [point.subscribe(_listener) for point in SENDING]
    ends.append(RUNNING.subscribe(_child))

    def leave() -> None:
        for end in ends:
            end()

    return leave


class _Follower:
    """Writes the mark when a child is found to have ended."""

    def before(self, args: tuple[Any, ...], _kwargs: dict[str, Any], /) -> Any:
        return args[0]

    def after(self, child: Any, _result: Any, _error: BaseException | None, /) -> None:
        code = child.returncode
        if isinstance(code, int) and _matters(child):
            ending: dict[str, Any] = {"code": code, "signal": None} if code >= 0 else {"code": None, "signal": -code}
            if code == -signal.SIGTERM and child in _asked:
                ending[EXIT_BY] = PARENT
            core.mark(EXIT, PROCESS, child.pid, ending, ESSENTIAL)


class _Listener:
    """Remembers the children that the program itself asks to end: `Process.terminate`, a pool that is left."""

    def before(self, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> Any:
        if signal.SIGTERM in (*args[1:], *kwargs.values()):
            _asked[args[0]] = True

    def after(self, _token: Any, _result: Any, _error: BaseException | None, /) -> None:
        pass


class _Child:
    """In a child of multiprocessing: reports the exception that ends it."""

    def before(self, _args: tuple[Any, ...], _kwargs: dict[str, Any], /) -> Any:
        pass

    def after(self, _token: Any, _result: Any, error: BaseException | None, /) -> None:
        recorder = serving()
        if error is not None and recorder is not None and recorder.pid == os.getpid():
            recorder.report_child(error)


_asked: WeakTable[bool] = WeakTable()
_follower = _Follower()
_listener = _Listener()
_child = _Child()


def _matters(child: Any) -> bool:
    """Is this child a Python, or has it recorded something? What else a program starts is of no interest."""
    if not hasattr(child, "args") or _is_python(child.args):  # of multiprocessing, or so called
        return True
    run = config.peek("run")
    return run is not None and os.path.isdir(os.path.join(run, f"{host()}-{child.pid}-0"))


def _is_python(command: Any) -> bool:
    first = command if isinstance(command, str | bytes | os.PathLike) else next(iter(command), "")
    words = os.fsdecode(first).split()
    return bool(words) and os.path.basename(words[0]).lower().startswith("python")
