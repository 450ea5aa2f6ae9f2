"""The single place where Sonde swallows its own failures, so that none of them reaches the recorded program.

    with guard("writing process.json"):          # as a context manager
        ...

    @guard("opening the process folder", default=None)      # as a decorator: what a failed call returns
    def open_folder() -> Files | None: ...

A failure is counted, and logged once per place through the logger "sonde". Put a guard around Sonde's code only, never
around a call of the user's code. Exceptions of the program pass: `KeyboardInterrupt`, `SystemExit` and every other
`BaseException` that is no `Exception`, and whatever one of its signal handlers raises while Sonde's code runs (a timeout, a
preemption). Not for generators and coroutines: their bodies run later.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import partial, wraps
from types import CodeType, FrameType, TracebackType
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

from sonde.errors import SondeError

_P = ParamSpec("_P")
_R = TypeVar("_R")
_D = TypeVar("_D")

# A place is a constant text, so there are few; the bound holds if somebody builds the text from data after all.
MAX_PLACES = 1000
OTHER_PLACES = "(other places)"
VARARGS = 0x04  # a flag of code: it takes *args


class _Failures:
    """What failed in this process, by place."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.reasons: dict[str, str] = {}
        self.renew_lock()

    def renew_lock(self) -> None:
        # Reentrant: a signal handler may fail while its own thread is counting.
        self.lock = threading.RLock()

    def in_child(self) -> None:
        """Start to count afresh after a fork; what the parent has reported is not reported again."""
        self.renew_lock()
        self.counts = {}

    def count(self, doing: str, reason: str) -> bool:
        """Count a failure; True if it is the first one at this place."""
        with self.lock:
            if doing not in self.reasons and len(self.reasons) >= MAX_PLACES:
                doing = OTHER_PLACES
            self.counts[doing] = self.counts.get(doing, 0) + 1
            first = doing not in self.reasons
            self.reasons.setdefault(doing, reason)
            return first


_failures = _Failures()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_failures.in_child)


class guard(Generic[_D]):  # noqa: N801  it reads as a word in `with guard(...)`
    """Swallow, count and log failures of the code inside; see the module's text."""

    __slots__ = ("_default", "_doing", "_then")

    @overload
    def __init__(self: guard[None], doing: str, *, then: Callable[[], None] | None = None) -> None: ...
    @overload
    def __init__(self: guard[_D], doing: str, default: _D, *, then: Callable[[], None] | None = None) -> None: ...
    def __init__(self, doing: str, default: object = None, *, then: Callable[[], None] | None = None) -> None:
        """`doing` completes the sentence "failed while ..."; `default` is what a failed call of a function returns.

        `then` is called after each failure, for what is to be given up.
        """
        self._doing = doing
        self._default = cast("_D", default)  # the overloads tie the two
        self._then = then

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool:
        if not isinstance(error, Exception) or from_handler(error):
            return False
        _note(self._doing, error, self._then)
        return True

    def __call__(self, function: Callable[_P, _R], /) -> Callable[_P, _R | _D]:
        doing, default, then = self._doing, self._default, self._then

        @wraps(function)
        def guarded(*args: _P.args, **kwargs: _P.kwargs) -> _R | _D:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                if from_handler(error):
                    raise
                _note(doing, error, then)
                return default

        return guarded


def failure_of(do: Callable[[], object]) -> str | None:
    """Why a call of another library failed, in a process that is ours and says so itself; None: it did not."""
    try:
        do()
    except Exception as error:  # noqa: BLE001  it may raise anything
        return " ".join(_text(error).split())[:300]
    return None


def counts() -> dict[str, int]:
    """How often each place has failed in this process."""
    with _failures.lock:
        return dict(_failures.counts)


def reasons() -> dict[str, str]:
    """The first failure of each place that has ever failed, as text."""
    with _failures.lock:
        return dict(_failures.reasons)


def from_handler(error: BaseException) -> bool:
    """Did a signal handler of the program raise this, while code of Sonde's was running? C asks this, too."""
    trace, frames = error.__traceback__, []
    try:
        while trace is not None:
            if not str(trace.tb_frame.f_globals.get("__name__")).startswith("sonde."):
                frames.append(trace.tb_frame)
            trace = trace.tb_next
        codes = {frame.f_code for frame in frames}
        return any(map(_got_its_caller, frames)) or (bool(codes) and not codes.isdisjoint(_handlers()))
    except (RecursionError, MemoryError):  # no room to look: so that is what failed
        return False


def pass_on(error: BaseException) -> None:
    """Raise it again if it is the program's: for an `except` of errors that a signal handler may raise, too (`TimeoutError`)."""
    if from_handler(error):
        raise error


def _handlers() -> set[CodeType | None]:
    """The code of all Python functions that handle signals now."""
    signal = sys.modules.get("signal")
    return set() if signal is None else {_code(signal.getsignal(number)) for number in range(1, signal.NSIG)}


def _code(handler: Any) -> CodeType | None:
    while isinstance(handler, partial):
        handler = handler.func
    call = getattr(type(handler), "__call__", None)  # noqa: B004  of an object that can be called
    function = getattr(handler, "__func__", handler)  # of a bound method
    return getattr(function, "__code__", None) or getattr(call, "__code__", None)


def _got_its_caller(frame: FrameType) -> bool:
    """As signal handlers do, also one that is none any more: it may remove itself before it raises."""
    code, caller = frame.f_code, frame.f_back
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & VARARGS)
    if not count or caller is None:
        return False
    given = [frame.f_locals.get(name) for name in code.co_varnames[:count]]
    return any(one is caller or (type(one) is tuple and bool(one) and one[-1] is caller) for one in given)


def _note(doing: str, error: Exception, then: Callable[[], None] | None) -> None:
    try:
        reason = _text(error)
        if _failures.count(doing, reason):
            _log(doing, reason, error)
        if then is not None:
            then()
    except Exception as another:  # nothing is left to be done: a guard that raises would be the failure itself
        if from_handler(another):
            raise


def _text(error: Exception) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as another:  # an exception whose text cannot be made still has a type
        if from_handler(another):
            raise
        return type(error).__name__


def warn(message: str, *values: object, exc_info: Any = None) -> None:
    """Log a warning for the user."""
    import logging  # several ms, and needed only if something is wrong

    logging.getLogger("sonde").warning(message, *values, exc_info=exc_info)


def _log(doing: str, reason: str, error: Exception) -> None:
    expected = isinstance(error, SondeError | OSError)
    warn(
        "Sonde failed while %s (%s). Your program is not affected; the recording may be incomplete. This message "
        "appears once; later failures here are only counted.",
        doing,
        reason,
        exc_info=None if expected else (type(error), error, error.__traceback__),
    )
