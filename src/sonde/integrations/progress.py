"""What a framework says of its training: at which step and epoch it is, when it only evaluates, which model it trains."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Mapping
from typing import Any

from sonde import session
from sonde.errors import SettingError, nearest
from sonde.events import core
from sonde.guard import guard
from sonde.probes import step
from sonde.probes.layers.record import trace_model_instance
from sonde.store.probe import EVALUATION, PROBE

_following = guard("following a training framework")


class TrainerProgress:
    """That of one trainer. Every method is harmless: while nothing is recorded, and if something is wrong."""

    def __init__(self, layers: Mapping[str, Any] | None) -> None:
        """`layers`: arguments of `trace_model_instance` for the model that is trained; None: it is left to deep mode."""
        self._layers = _checked(layers)
        self._model: weakref.ref[Any] | None = None
        self._evaluations = 0  # those that lie in each other
        self._span = core.Span(EVALUATION, PROBE, key=0, base=step.phases)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as one that has seen nothing: frameworks send their callbacks to other processes."""
        return TrainerProgress, (self._layers,)

    def begins(self, steps: int) -> None:
        """Training begins, or goes on after so many steps; it is recorded from now on, if it was not."""
        with _following:
            if session.current() is None:
                session.init()
            if step.now.installed:
                step.begin()
                if steps > (core.get_context()[0] or 0):
                    core.count_steps(steps)

    def steps(self) -> int:
        """How many steps were counted until now."""
        with _following:
            return core.get_context()[0] or 0
        return 0

    def epoch(self, number: int) -> None:
        """An epoch begins."""
        with _following:
            if step.now.installed:
                core.set_context(None, number)

    def model(self, model: Any) -> None:
        """This is what is trained: record its layers, unless that is done."""
        if self._layers is None or (self._model is not None and self._model() is model):
            return
        self._model = weakref.ref(model)
        trace_model_instance(model, **self._layers)

    def evaluates(self) -> None:
        """An evaluation begins."""
        with _following:
            self._evaluations += 1
            if self._evaluations == 1:
                self._span.start()

    def evaluated(self, error: BaseException | None = None) -> None:
        """It has ended."""
        with _following:
            if self._evaluations == 1:
                self._span.__exit__(type(error) if error else None, error, None)
            self._evaluations = max(self._evaluations - 1, 0)

    def failed(self, error: BaseException) -> None:
        """Training has ended by an exception, perhaps inside an evaluation."""
        while self._evaluations:
            self.evaluated(error)


def _checked(layers: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    valid = list(inspect.signature(trace_model_instance).parameters)[1:]
    for name in layers or ():
        if name not in valid:
            raise SettingError(
                f"sonde_kwargs are arguments of trace_model_instance(), which has no {name!r}. {nearest(name, valid)}"
            )
    return layers
