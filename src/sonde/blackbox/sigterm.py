"""Before SIGTERM ends the program, or its own handler is called: time to write something. Exit status and handlers stay.

SIGTERM is caught in C (`native/sigterm.c`), so that what the program has installed, or installs later, is called as ever, and that
a program which hangs still ends. Without that part, or where no signal is to spare, SIGTERM is not seen.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

from sonde.native import sigterm

native: Any = sigterm  # None: C was not built
GRACE_SECONDS = 10  # a program that does not come to run Python code in this time ends without


class _State:
    def __init__(self) -> None:
        self.callback: Callable[[], None] | None = None
        self.number = 0  # the signal that calls us; 0: none
        self.busy = 0  # blocks in which a SIGTERM has to wait
        self.came = False  # one does
        self.handler: Callable[..., Any] | None = None  # of `number`

    def in_child(self) -> None:
        """After a fork: what ends the parent is none of the child's business."""
        self.busy, self.came = 0, False
        if self.number and native is not None:
            native.unwatch()


_state = _State()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_state.in_child)


class later:  # noqa: N801  it reads as a word in `with later():`
    """A block in which a SIGTERM waits: it is acted on when the block ends."""

    def __enter__(self) -> None:
        _state.busy += 1

    def __exit__(self, *_: object) -> None:
        _state.busy -= 1
        if _state.came and not _state.busy:
            _state.came = False
            native.pass_on()


class undisturbed:  # noqa: N801  it reads as a word in `with undisturbed():`
    """A block in which the end of a child calls no handler: torch's raises an error wherever the program is, for each worker
    that dies. For a program that ends anyway, or whose handler runs afterwards (`repeat`).
    """

    theirs: Any = None
    came = False  # a child has ended

    def __enter__(self) -> None:
        child = getattr(signal, "SIGCHLD", None)
        if child is not None and threading.current_thread() is threading.main_thread():
            found = signal.getsignal(child)
            if callable(found):
                self.theirs = found
                signal.signal(child, self._note)

    def __exit__(self, *_: object) -> None:
        if self.theirs is not None:
            signal.signal(signal.SIGCHLD, self.theirs)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.came = True

    def repeat(self) -> None:
        """Let the handler know of a child that ended in the block."""
        if self.came:
            signal.raise_signal(signal.SIGCHLD)


def watch(callback: Callable[[], None]) -> bool:
    """Call `callback` before SIGTERM is acted on. Call this again now and then: it sees handlers that came since.

    Does nothing outside of the main thread, the only one in which Python handles signals.
    """
    if native is None or threading.current_thread() is not threading.main_thread():
        return False
    _state.callback = callback
    if not _state.number:
        _state.number = _spare()
    return bool(_state.number and native.watch(_state.number, GRACE_SECONDS))


def unwatch() -> None:
    """Leave SIGTERM alone."""
    _state.callback = None
    if not _state.number:
        return
    native.unwatch()
    if threading.current_thread() is threading.main_thread() and signal.getsignal(_state.number) is _state.handler:
        signal.signal(_state.number, signal.SIG_DFL)
    _state.number = 0


def _spare() -> int:
    """Take a signal that nobody uses; 0 if there is none."""
    last = int(getattr(signal, "SIGRTMAX", 0))
    for number in range(last - 5, last - 9, -1):
        if last and signal.getsignal(number) == signal.SIG_DFL:
            _state.handler = partial(
                native.handle, _on_term
            )  # nothing can interrupt it before it has begun, as it is C
            signal.signal(number, _state.handler)
            return number
    return 0


def _on_term(begun: list[bool]) -> bool:
    """Call back, once; whether SIGTERM may act now. Called again where a handler of another signal has raised in here."""
    if _state.busy:
        _state.came = True
        return False
    if _state.callback is not None and not begun:
        quiet = undisturbed()  # a scheduler may end the workers of a loader at the same time
        with quiet:
            begun.append(True)
            _state.callback()
        quiet.repeat()
    return True
