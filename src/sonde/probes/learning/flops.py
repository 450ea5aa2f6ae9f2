"""Floating-point operations of one step, by torch's own counter: the third step that this process trains, which is still warm-up.

The counter is on inside outermost calls of modules with gradients, and inside backward passes; between them the program runs as always. It
sees no kernels that torch.compile has made, and code that would be compiled under it is not compiled: then nothing is counted.
"""

from __future__ import annotations

import functools
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sonde.events import core
from sonde.guard import guard
from sonde.hooks.torch import private
from sonde.hooks.torch.backward import backward
from sonde.hooks.torch.module import module_call
from sonde.probes.disable import switch_off
from sonde.probes.learning.rate import at_step
from sonde.probes.learning.tensors import capturing
from sonde.store.probe import FLOPS
from sonde.store.record import ESSENTIAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings

DOING = "counting floating-point operations"
AFTER = 2  # steps: the first ones may still build something
COMPILED = "torch.compile"
CAPTURED = "CUDA graphs"
UNKNOWN_SHAPES = "an operation whose count failed"


def install(settings: Settings) -> Callable[[], None]:
    """Count one step, if the settings say so."""
    if not (settings.flops or settings.learning):
        return lambda: None
    return StepFlops().start()


class StepFlops:
    """The count of this process."""

    def __init__(self) -> None:
        self._leave: list[Callable[[], None]] = []
        self._due: int | None = None  # the step
        self._armed = False
        self._total = 0
        self._inside = False  # the counter cannot be entered twice
        self._mode: Any = None
        self.safe = guard(DOING, then=self._give_up)

    def start(self) -> Callable[[], None]:
        """Wait for the step; the returned function ends it."""
        self._leave = [at_step(self._stepped)]
        return self.end

    def end(self) -> None:
        """Count no more."""
        while self._leave:
            self._leave.pop()()

    def _give_up(self) -> None:
        self.end()
        switch_off("flops", DOING)

    def _stepped(self, _optimizer: Any) -> None:
        """An optimizer has stepped."""
        number = core.get_context()[0] or 0
        if self._due is None:
            self._due = number + AFTER
        with self.safe:
            if number > self._due:
                self._finish()
            elif number == self._due - 1 and not self._armed:
                self._arm()

    def _arm(self) -> None:
        """The next step is counted."""
        self._armed = True
        if private.compiled_frames():
            self.fail(COMPILED)
            return
        self._mode = _counter(lambda: self.fail(UNKNOWN_SHAPES))
        self._leave += [module_call.subscribe(_CountedCalls(self)), backward.subscribe(_Passes(self))]

    def _finish(self) -> None:
        if self._armed and self._leave:
            core.counter("step", self._total, FLOPS, None, None, ESSENTIAL, self._due)
        self.end()

    def fail(self, why: str) -> None:
        """It cannot be counted."""
        core.mark("uncounted", FLOPS, None, {"why": why}, ESSENTIAL)
        self._armed = False
        self.end()

    def begin(self) -> Any:
        """A call begins; None: it is not of the step that is counted."""
        if not self._armed or self._inside or core.get_context()[0] != self._due:
            return None
        if not sys.modules["torch"].is_grad_enabled():
            return None
        with self.safe:
            if capturing():
                self.fail(CAPTURED)
                return None
            self._inside = True
            self._mode.__enter__()
            return self._mode
        return None

    def done(self, mode: Any) -> None:
        """The call has ended."""
        if mode is not None:
            with self.safe:
                self._inside = False
                mode.__exit__(None, None, None)
                self._total += mode.get_total_flops()


class _CountedCalls:
    """Sees outermost calls of modules."""

    def __init__(self, flops: StepFlops) -> None:
        self._flops = flops

    def before(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
        """One begins."""
        return self._flops.begin() if self.counts(args) else None

    def counts(self, args: tuple[Any, ...]) -> bool:
        """May it be counted? A module that is compiled may be compiled again."""
        if any(map(private.is_compiled, args[0].modules())):
            self._flops.fail(COMPILED)
            return False
        return True

    def after(self, mode: Any, _result: Any, _error: BaseException | None) -> None:
        """It has ended."""
        self._flops.done(mode)


class _Passes(_CountedCalls):
    """Sees backward passes."""

    def counts(self, _args: tuple[Any, ...]) -> bool:
        """What is compiled was seen in the forward."""
        return True


class _Tracker:
    """In the place of what follows modules for the counter: it would put hooks on them, and only the sum is wanted."""

    parents = ("Global",)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


def _counter(failed: Callable[[], None]) -> Any:
    """torch's counter. A count that raises must not reach the program: it goes to `failed`."""
    counting = import_module("torch.utils.flop_counter")

    def safe(count: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(count)
        def counted(*args: Any, **kwargs: Any) -> Any:
            with guard(DOING, then=failed):
                return count(*args, **kwargs)
            return 0

        return counted

    found = counting.FlopCounterMode(display=False)
    found.flop_registry = {operation: safe(count) for operation, count in found.flop_registry.items()}
    found.mod_tracker = _Tracker()
    return found
