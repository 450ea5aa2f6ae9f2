"""Decides what a non-finite value means: nothing, a suspicion, or the alarm.

The states of the alarm:

    Watching      all was finite, or there is a suspicion: an infinity alone (masks are full of them)
    Provisional   a layer made a NaN: the alarm was raised, and is taken back if the step's backward pass ends well
    Confirmed     the alarm stands: only further losses are counted, until another model is trained

A suspicion becomes the alarm when a NaN, a loss or a gradient that is not finite follows in the same step. After an alarm
was taken back, a NaN of a layer is only a suspicion too. Non-finite gradients under a GradScaler are normal, unless its
scale is 1 or less.
"""

from __future__ import annotations

import sys
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sonde.errors import NonFinite
from sonde.events import core
from sonde.guard import warn
from sonde.hooks.torch import private
from sonde.nonfinite import backward, batches, certificate, check, fallback, forward
from sonde.nonfinite.backward import SeenGradient
from sonde.nonfinite.certificate import Evidence, Location
from sonde.nonfinite.items import Carrier
from sonde.store.probe import NONFINITE, NONFINITE_UNUSED
from sonde.store.record import ESSENTIAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.nonfinite.forward import CallEnd, Given
    from sonde.nonfinite.models import WatchedLayer, WatchedModels

    Facts = dict[str, Any]  # a certificate

MOST_MARKS = 100  # of non-finite losses after the first alarm
TOLERANCE = 3  # suspicions against a layer that led to nothing; later ones are ignored
MOST_SCALED = 4  # scaled losses that are remembered


class Suspicion(NamedTuple):
    """Not finite, and no alarm yet."""

    facts: Facts
    layer: WatchedLayer
    batches: int  # delivered so far


class PassGradient(NamedTuple):
    """A non-finite gradient of the backward pass that runs, and what was seen of gradients."""

    facts: Facts
    seen: list[SeenGradient]


class ApartGradient(NamedTuple):
    """A non-finite gradient of torch.autograd.grad."""

    facts: Facts
    batches: int


@dataclass(slots=True)
class Watching:
    """No alarm."""

    suspicion: Suspicion | None = None
    gradient: PassGradient | None = None
    apart: ApartGradient | None = None


@dataclass(slots=True)
class Provisional:
    """An alarm that may be taken back."""

    layer: WatchedLayer
    nodes: int  # autograd's count when it was raised
    batches: int  # delivered then
    dump: str | None  # the black box's, written for it
    new_model: bool = False  # another one was met since
    gradient: bool = False  # one of the pass that runs is not finite


@dataclass(slots=True)
class Confirmed:
    """An alarm that stands."""

    same_step: bool  # the next loss is that of the step of the alarm
    new_model: bool = False


class _ScaledLoss(NamedTuple):
    result: weakref.ref[Any]
    bits: int  # of the loss without its scale
    scaler: weakref.ref[Any]

    def may_overflow(self) -> bool:
        """Is the scale one that can make gradients overflow? At 1 and below they are not finite by themselves."""
        scaler = self.scaler()
        return scaler is None or scaler.get_scale() > 1


class AlarmListener(Protocol):
    """Gets to know alarms."""

    def raised(self, facts: dict[str, Any]) -> str | None:
        """Returns the name of the dump that was written, if any."""

    def retracted(self, dump: str) -> None:
        """The alarm of this dump was taken back."""


_listeners: list[AlarmListener] = []


def subscribe(listener: AlarmListener) -> Callable[[], None]:
    """Tell this listener of alarms, until the returned function is called."""
    _listeners.append(listener)
    return lambda: _listeners.remove(listener)


class Alarm:
    """The alarm of this process."""

    def __init__(self, models: WatchedModels) -> None:
        self.models = models
        self.action = "record"
        self.forget()

    def forget(self) -> None:
        """Nothing was seen."""
        self.first: Facts | None = None
        self.unused: Facts | None = None
        self.forgiven = self.later = 0
        self.reset()

    def reset(self) -> None:
        """Watch from here on."""
        self._enter(Watching())

    def _enter(self, state: Watching | Provisional | Confirmed) -> None:
        self.state = state
        self._scaled: list[_ScaledLoss] = []

    def meet_model(self) -> None:
        """A model that can be trained was met."""
        if not isinstance(self.state, Watching):
            self.state.new_model = True

    # ── forward ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def output(self, layer: WatchedLayer, result: Any, call: Given, bits: int, at: CallEnd) -> NonFinite | None:
        """The result of a layer is not finite. Returns what is raised in the program, if anything."""
        if not isinstance(self.state, Watching) or (self._is_mild(bits) and layer.forgiven >= TOLERANCE):
            return None
        if self.state.suspicion is not None and self.state.suspicion.batches != batches.count():
            self._forgive(self.state)
        bad = next(one for one in forward.tensors(result) if check.look(one))
        facts = self._certified(forward.of_result(layer, bad, call, bits, at, self._finite()))
        suspicion, apart = self.state.suspicion, self.state.apart
        if self._is_mild(bits) and not layer.loss:
            if suspicion is None:
                self.state.suspicion = Suspicion(facts, layer, batches.count())
                fallback.engine().suspect(True)
            return None
        if facts["parameters"] and apart is not None and batches.count() - apart.batches <= 1:
            return self._raise(apart.facts)[0]  # an update without an optimizer has used that gradient
        came_in = facts["before"] is not None or not facts["producer"]
        error, dump = self._raise(suspicion.facts if suspicion is not None and came_in else facts)
        if error is None and not (layer.loss or facts["parameters"]) and sys.modules["torch"].is_grad_enabled():
            self.state = Provisional(layer, private.sequence_number()(), batches.count(), dump)
            fallback.engine().turn(fallback.ON)
            fallback.engine().suspect(True)  # the end of the backward pass is needed in any case
        return error

    def _is_mild(self, bits: int) -> bool:
        """Is this no alarm by itself? Masks are full of infinities, and a NaN led to nothing before."""
        return bits == check.INF or self.unused is not None

    def _finite(self) -> list[tuple[int, int]]:
        return [(one.first, one.end) for one in self.models.node_ranges()]

    # ── backward ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def loss(self, loss: Any, bits: int) -> NonFinite | None:
        """A loss that goes into a backward pass is not finite."""
        scaled = self._scale_of(loss)
        if isinstance(self.state, Confirmed) or (scaled is not None and not scaled.bits):
            return None  # only with its scale, which the scaler will lower
        if isinstance(self.state, Provisional):
            # What was made of a batch without gradients has no nodes by which its loss could be known.
            late = batches.count() != self.state.batches and not backward.reaches(loss, self.state.nodes)
            self._confirm(self.state)
            if late:
                self.passed(bits)
            return None
        loss = next(one for one in forward.tensors(loss) if check.look(one))
        if self.state.suspicion is not None:
            return self._raise(self.state.suspicion.facts, passing=True)[0]
        found = forward.of_loss(loss, bits, fallback.engine().at()[1], self._finite())
        return self._raise(self._certified(found), passing=True)[0]

    def gradient(
        self, layer: WatchedLayer, side: int, gradient: Any, bits: int, good: WatchedLayer | None, good_side: int
    ) -> None:
        """A gradient is not finite; the end of the pass decides. `good`: the last layer whose gradient was finite."""
        if isinstance(self.state, Provisional):
            self.state.gradient = True
        if not isinstance(self.state, Watching):
            return
        passed = fallback.engine().at()[3]
        carrier = Carrier(gradient, getattr(passed, "grad_fn", None), exact=False)
        found = Evidence(Location("backward", True), bits, gradient, arrival=batches.meant(), carriers=[carrier])
        facts = self._certified(found)
        seen = [SeenGradient(layer.nodes()[1 - side], True)] if layer.has_nodes() else []
        if good is not None and good.has_nodes():
            seen.append(SeenGradient(good.nodes()[1 - good_side], False))
        self.state.gradient = PassGradient(facts, seen)
        # By torch.autograd.grad: the next pass shows what came of it, or the next use of a parameter.
        if passed is None:
            fallback.engine().suspect(True)
            place = backward.locate(seen, self.models.node_ranges(), None)
            self.state.apart = ApartGradient({**facts, **({} if place is None else place._asdict())}, batches.count())

    def ended(self, index: int, bits: int, seen: int) -> NonFinite | None:
        """A backward pass has ended. `index`: of a parameter whose gradient is not finite; `seen`: how many have one."""
        state = self.state
        if isinstance(state, Confirmed):
            return None
        passed = fallback.engine().at()[3]
        if isinstance(state, Provisional):
            if index >= 0 or state.gradient or not backward.reaches(passed, state.nodes):
                self._confirm(state)
            else:
                self._retract(state)
            return None
        gradient, state.gradient, state.apart = state.gradient, None, None
        scaled = self._scale_of(passed)
        overflow = scaled is not None and scaled.may_overflow()
        if not overflow and (index >= 0 or (gradient is not None and not seen)):
            suspicion = state.suspicion
            return self._raise(self._located(gradient, passed, index, bits) if suspicion is None else suspicion.facts)[
                0
            ]
        self._forgive(state, gradient is not None or index >= 0)
        return None

    def _located(self, gradient: PassGradient | None, passed: Any, index: int, bits: int) -> Facts:
        """The certificate of a gradient: who made it, by what was seen of others."""
        models = self.models
        bad = models.bad_gradients()
        seen = [] if gradient is None else gradient.seen
        place = backward.locate(
            [*seen, *(SeenGradient(layer.nodes()[1], wrong) for layer, wrong in bad.items() if layer.has_nodes())],
            models.node_ranges(),
            getattr(passed, "grad_fn", None),
        )
        if gradient is None and _has_peers():  # their gradients are in ours
            owner = models.owners[index]
            place = Location("gradient", False, owner.name, owner.type)
        elif place is None or (
            gradient is None and sum(bad.values()) == 1 and next(iter(bad)) is not models.owners[index]
        ):
            owner = models.owners[index]
            place = Location("gradient", True, owner.name, owner.type)
        if gradient is None:
            return self._certified(Evidence(place, bits, models.weights[index]().grad, arrival=batches.meant()))
        return {**gradient.facts, **place._asdict()}

    def passed(self, bits: int) -> None:
        """A backward pass begins after the first alarm; `bits`: of its loss."""
        if not isinstance(self.state, Confirmed):
            return
        if not bits and self.state.new_model:
            self.reset()
            self.models.drop_bad_weights()
            fallback.engine().turn(fallback.ON)
            return
        if bits and not self.state.same_step:
            self.later += 1
            if self.later <= MOST_MARKS:
                arrival = batches.meant()
                core.mark("again", NONFINITE, key=None if arrival is None else arrival.key)
        self.state.same_step = False

    # ── changes of state ─────────────────────────────────────────────────────────────────────────────────────────────

    def _raise(self, facts: Facts, *, passing: bool = False) -> tuple[NonFinite | None, str | None]:
        """Raise the alarm; returns what is raised in the program, and the dump that was written.

        `passing`: the loss that comes of it goes into its backward pass now.
        """
        self.first = facts
        before = not passing and facts["where"] in ("data", "forward", "loss")
        self._enter(Confirmed(same_step=before and fallback.engine().at()[3] is None))
        fallback.engine().turn(fallback.QUIET)
        core.mark(facts["layer"] or facts["where"], NONFINITE, key=facts["batch"], args=facts, level=ESSENTIAL)
        dump = next(filter(None, [one.raised(facts) for one in _listeners]), None)
        said = certificate.sentence(facts)
        if self.action == "warn":
            warn(said)
        return NonFinite(said, facts) if self.action == "stop" else None, dump

    def _confirm(self, state: Provisional) -> None:
        """The alarm stands."""
        self._enter(Confirmed(same_step=False, new_model=state.new_model))
        fallback.engine().turn(fallback.QUIET)

    def _retract(self, state: Provisional) -> None:
        """The backward pass has ended well: take the alarm back."""
        facts, self.first = self.first, None
        self.state = Watching()
        self.unused = self.unused or facts
        self.forgiven += 1
        state.layer.forgiven += 1
        fallback.engine().suspect(False)
        core.mark(state.layer.name, NONFINITE_UNUSED, level=ESSENTIAL)
        if state.dump is not None:
            for one in _listeners:
                one.retracted(state.dump)

    def _forgive(self, state: Watching, more: bool = False) -> None:
        """A step has ended, and nothing came of what was seen."""
        if state.suspicion is not None:
            self.forgiven += 1
            state.suspicion.layer.forgiven += 1
            state.suspicion = None
        self.forgiven += more
        fallback.engine().suspect(False)

    def _certified(self, found: Evidence) -> Facts:
        return certificate.certificate(found, scaled=bool(self._scaled))

    # ── gradient scalers ─────────────────────────────────────────────────────────────────────────────────────────────

    def scaled(self, result: Any, loss: Any, scaler: Any) -> None:
        """A gradient scaler has made `result` of `loss`."""
        if type(result) is sys.modules["torch"].Tensor:
            made = _ScaledLoss(weakref.ref(result), check.look(loss), weakref.ref(scaler))
            self._scaled = [*self._scaled[1 - MOST_SCALED :], made]

    def _scale_of(self, loss: Any) -> _ScaledLoss | None:
        return next((one for one in self._scaled if one.result() is loss), None) if loss is not None else None


def _has_peers() -> bool:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return False
    size: int = distributed.get_world_size()
    return size > 1
