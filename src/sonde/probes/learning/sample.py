"""Is it learning? Every N steps: gradients, weights, updates, activations and the fields of the batch.

Between these steps nothing is subscribed but the scale of gradients and their clipping. A sampled step is looked at from the end of
the one before it to the next update after it, which shows whether weights have changed in between.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.events import core
from sonde.guard import guard
from sonde.hooks.torch.backward import backward
from sonde.hooks.torch.module import module_call
from sonde.hooks.torch.optimizer import optimizer_made, optimizer_step
from sonde.probes import step
from sonde.probes.disable import switch_off
from sonde.probes.layers import names as naming
from sonde.probes.learning import fields, scale
from sonde.probes.learning.activations import Activations
from sonde.probes.learning.interval import Pace, Timed
from sonde.probes.learning.names import LayerNames
from sonde.probes.learning.parameters import Update
from sonde.probes.learning.pending import PendingNumbers
from sonde.probes.learning.rate import at_step
from sonde.probes.learning.structure import Structures
from sonde.probes.learning.tensors import capturing, unseen
from sonde.probes.learning.trainable import Trainable
from sonde.probes.learning.unchanged import Weights
from sonde.probes.learning.zerograd import Carried
from sonde.probes.loader import listeners
from sonde.probes.phases import optimizer as optimizers
from sonde.store.probe import LEARNING, loader_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings
    from sonde.hooks.torch.loader import Batch

DOING = "recording how a model learns"
MOST_BATCHES = 4  # of a loader in one step that are looked at: an evaluation has many


def install(settings: Settings) -> Callable[[], None]:
    """Sample steps, as the setting says; 0: none."""
    if not settings.learning:
        return lambda: None
    return Learning(settings.learning, frozenset(settings.exclude)).start()


class Learning:
    """The samples of this process."""

    def __init__(self, every: int, exclude: frozenset[str]) -> None:
        self.pace = Pace(every)
        self._exclude = exclude
        self._leave: list[Callable[[], None]] = []
        self._armed: list[Callable[[], None]] = []
        self.results = PendingNumbers()
        self.names = LayerNames()
        self.structures = Structures(self.names)
        self.facts = Trainable()
        self.weights = Weights(self.names)
        self.carried = Carried()
        self.delivered = False  # there is a loader
        self._called: set[int] = set()  # the addresses of models, in this step
        self.safe = Timed(DOING, self.give_up)
        self._looked: dict[int | None, int] = {}  # batches of each loader, in this step
        self._number = -1  # of the step that was sampled last

    def start(self) -> Callable[[], None]:
        """Begin; the returned function ends it."""
        self._leave = [
            self._finish,
            self._disarm,
            optimizer_made.subscribe(_NewOptimizers(self)),
            scale.watch(self.results),
            at_step(self._stepped),
        ]
        self._arm()
        return self.end

    def _arm(self) -> None:
        if not self._armed:
            self._armed = [
                module_call.subscribe(_SampledCalls(self)),
                backward.subscribe(_SampledBackwards(self)),
                optimizer_step.subscribe(_OptimizerSteps(self)),
                listeners.at_delivery(self._deliver),
            ]

    def _disarm(self) -> None:
        while self._armed:
            self._armed.pop()()
        self.weights.forget()

    @guard(DOING)
    def _stepped(self, _optimizer: Any) -> None:
        """An optimizer has stepped: be ready if this step, or the next one, is due, or the one before was."""
        number = core.get_context()[0] or 0
        self.results.collect()
        if self.pace.near(number):
            self._arm()
        elif self._armed:
            with self.safe:
                self.step_ended()
                self._disarm()
            self.pace.sampled(self.safe.spent)

    def step_ended(self) -> None:
        """What was asked for in the sampled step is on its way; what is known of its models is written."""
        self._called.clear()
        self._looked.clear()
        self.facts.end()
        self.carried.end()
        self.results.order()

    def _finish(self) -> None:
        self.step_ended()
        self.results.collect()
        if self.results.left_out:
            core.counter("left_out", self.results.left_out, LEARNING)

    def end(self) -> None:
        """Take no more samples."""
        while self._leave:
            self._leave.pop()()

    def give_up(self) -> None:
        """A failure switches this probe off, and a mark in the run says so."""
        if self._leave:
            self._leave = [one for one in self._leave if one != self._finish]
            self.end()
            switch_off("learning", DOING)

    def due(self) -> bool:
        """Is this step one of those? What comes now belongs to it."""
        number = core.get_context()[0] or 0
        if not self.pace.due(number) or not step.phases.on:
            return False
        if number != self._number:
            self.step_ended()
            self._number = number
        return True

    def _deliver(self, _batch: Batch | None, key: int | None, data: Any) -> None:
        self.delivered = True
        if self.due():
            loader = None if key is None else loader_of(key)
            self._looked[loader] = looked = self._looked.get(loader, 0) + 1
            if looked > MOST_BATCHES:
                return
            with self.safe, unseen():
                fields.look(data, key, core.get_context()[0] or 0, self._exclude, self.results)

    def call_begins(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Activations | None:
        """A model is called: watch its layers, once in a step."""
        model = args[0]
        if not any(one.requires_grad for one in model.parameters()):
            return None
        if id(model) in self._called or not sys.modules["torch"].is_grad_enabled() or capturing():
            return None
        self._called.add(id(model))
        step.begin()  # this may be the first event of training
        number = core.get_context()[0] or 0
        with unseen():
            structure = self.structures.of(model)
            self.facts.called(model, structure)
            self.carried.watch(structure.learning())
            if not self.delivered:
                given = fields.named(args[1:], kwargs, naming.bare(model).forward)
                fields.look(given, None, number, self._exclude, self.results)
        return Activations(structure, number, self.safe)


class _ModelCall(NamedTuple):
    activations: Activations
    removed: Callable[[], None]


class _Step(NamedTuple):
    optimizer: Any
    update: Update
    closure: bool  # the program computes the gradients within the step


class _SampledCalls:
    """Sees outermost calls of modules."""

    def __init__(self, learning: Learning) -> None:
        self._learning = learning

    def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _ModelCall | None:
        """A model, or a loss, is called."""
        if not self._learning.due():
            return None
        with self._learning.safe:
            activations = self._learning.call_begins(args, kwargs)
            return None if activations is None else _ModelCall(activations, activations.watch())
        return None

    def after(self, call: _ModelCall | None, _result: Any, error: BaseException | None) -> None:
        """It has ended."""
        if call is None:
            return
        call.removed()
        if error is None:
            with self._learning.safe:
                call.activations.end(self._learning.results)


class _SampledBackwards:
    """Sees backward passes."""

    def __init__(self, learning: Learning) -> None:
        self._learning = learning

    def before(self, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        """One begins."""
        if self._learning.due():
            with self._learning.safe, unseen():
                self._learning.carried.backward_begins()

    def after(self, _token: Any, _result: Any, _error: BaseException | None) -> None:
        """It has ended."""


class _OptimizerSteps:
    """Sees steps of optimizers."""

    def __init__(self, learning: Learning) -> None:
        self._learning = learning

    def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Step | None:
        """One begins: its gradients are there, or come in its closure."""
        learning, optimizer = self._learning, args[0]
        if capturing():
            return None
        with learning.safe, unseen():
            number, at = optimizers.number_of(optimizer), core.get_context()[0] or 0
            learning.weights.compare(number, at, learning.results)
            if not learning.due():
                return None
            learning.facts.optimizer(optimizer)
            learning.facts.updates()
            learning.carried.update_begins(optimizer, number, at, learning.results)
            closure = kwargs.get("closure", args[1] if len(args) > 1 else None) is not None
            return _Step(optimizer, Update(optimizer, number, at, learning.names), closure)
        return None

    def after(self, begun: _Step | None, _result: Any, error: BaseException | None) -> None:
        """It has ended: its parameters are new."""
        if begun is None or error is not None:
            return
        with self._learning.safe, unseen():
            if begun.closure:
                self._learning.facts.updates()
            begun.update.end(self._learning.results, closure=begun.closure)
            self._learning.weights.keep(begun.optimizer, optimizers.number_of(begun.optimizer))


class _NewOptimizers:
    """Sees new optimizers."""

    def __init__(self, learning: Learning) -> None:
        self._learning = learning

    def before(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
        """One is made."""
        return args[0]

    @guard(DOING)
    def after(self, optimizer: Any, _result: Any, error: BaseException | None) -> None:
        """It is there."""
        if error is None:
            self._learning.facts.optimizer(optimizer)
