"""The watch for NaN and infinity: what every layer gives, the loss, gradients; and where the first one was born.

    sonde.flow.watch_nonfinite(model)                  record where the first one was born
    sonde.flow.watch_nonfinite(model, action="stop")   and raise NonFinite there

In the good case each result, and each gradient that comes to one, is read once (`finite`), by C code that nobody sees
(`native/finite.c`). Only what is found comes here, to be judged. The producer is the first place in the order of execution whose
inputs were all finite and whose output was not. A NaN is an alarm at once. An infinity alone is a suspicion (masks are full of
them): it becomes an alarm when a NaN, a loss or a gradient that is not finite comes of it in the same step. A NaN of a layer that comes
to nothing, since nobody uses it, is taken back when the backward pass of its step has ended well; from then on a NaN of a layer is a
suspicion too. Gradients that are not finite while a GradScaler is used are its own business, unless its scale is 1 or less. After the
first birth only further losses are counted, until another model is trained.
"""

from __future__ import annotations

import sys
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from sonde.errors import NonFinite, SettingError, WrapRefused, nearest
from sonde.events import core
from sonde.guard import guard
from sonde.hooks.torch import loader, memory, private
from sonde.hooks.torch.backward import backward
from sonde.hooks.torch.engine import unread
from sonde.hooks.torch.module import module_call
from sonde.hooks.torch.optimizer import scaler_scale
from sonde.hooks.torch.outermost import Routes, followed
from sonde.nonfinite import (
    backward as backprop,
    batches as arrivals,
    certificate as birth,
    check,
    fallback,
    items,
    operation,
    safe,
)
from sonde.nonfinite.backward import Seen, Span
from sonde.nonfinite.batches import LOADER, LOOP
from sonde.nonfinite.certificate import NOTHING, Inputs, Place
from sonde.nonfinite.items import Carrier
from sonde.nonfinite.operation import Origin
from sonde.probes.layers import names as naming
from sonde.probes.layers.backward import tensors_of
from sonde.probes.off import switch_off
from sonde.store.probe import NONFINITE, NONFINITE_UNSEEN, NONFINITE_UNUSED
from sonde.store.record import ESSENTIAL

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from sonde.nonfinite.batches import Arrival

DOING = "watching for non-finite values"
ACTIONS = ("record", "warn", "stop")
MOST_LAYERS = 20_000
MOST_MARKS = 100  # of steps after the first birth
TOLERANCE = 3  # suspicions against a layer that came to nothing; more are not asked about
MOST_SCALED = 4  # losses with a scale that are remembered
OUTPUTS = 4  # of one operation whose gradients are looked at
BLACKBOX = "sonde.blackbox.box"  # is asked to write what it has, if it is in use


def watch_nonfinite(model: Any = None, action: str = "record") -> NonFiniteWatch:
    """Watch this model, or, without one, all models, for NaN and infinity from now on.

    `action`: "record" writes where the first one was born into the run; "warn" says so once too, through the logger "sonde";
    "stop" raises NonFinite there. The result has `birth` (None while all is well) and `close()`, and is a context manager.
    """
    if action not in ACTIONS:
        raise SettingError(f"action={action!r} of watch_nonfinite() is none. {nearest(str(action), list(ACTIONS))}")
    torch = sys.modules.get("torch")
    if model is not None and (torch is None or not isinstance(model, torch.nn.Module)):
        raise WrapRefused(f"watch_nonfinite() needs a torch.nn.Module, and was given {type(model).__name__}.")
    with _watching:
        _watch.begin(model, action)
    return NonFiniteWatch()


class NonFiniteWatch:
    """The watch that runs."""

    @property
    def birth(self) -> dict[str, Any] | None:
        """The certificate of the first non-finite value; None: there was none."""
        return None if _watch.born is None else dict(_watch.born)

    @property
    def forgiven(self) -> int:
        """How often something was not finite and came to nothing: an infinity in a mask, a step that a GradScaler skipped."""
        return _watch.forgiven

    @property
    def unused(self) -> dict[str, Any] | None:
        """The certificate of the first NaN of a layer that reached neither the loss nor a gradient; None: there was none."""
        return None if _watch.unused is None else dict(_watch.unused)

    @property
    def later(self) -> int:
        """How many losses were not finite after the first birth."""
        return _watch.later

    def close(self) -> None:
        """Watch no more."""
        _watch.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<NonFiniteWatch: {birth.sentence(_watch.born) if _watch.born else 'all was finite'}>"


class _Watching(guard[None]):
    """The guard of the watch: a failure switches it off, and a mark in the run says so."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool:
        if error is None or not super().__exit__(kind, error, trace):
            return False
        _watch.leave()
        switch_off("nonfinite", DOING)
        return True


_watching = _Watching(DOING)


class Layer:
    """A module that is watched."""

    __slots__ = ("__weakref__", "call", "calm", "forgiven", "loss", "name", "own", "type")

    def __init__(self, name: str, module: Any) -> None:
        self.name = name
        self.type = type(naming.inside(module)).__name__
        self.loss = isinstance(module, sys.modules["torch"].nn.modules.loss._Loss)
        self.own = not type(module).__module__.startswith("torch.nn.")  # code of the program
        self.calm = not self.own and backprop.is_calm(module)
        self.forgiven = 0
        self.call: Callable[[], Any] = _nobody  # what is called for it; not kept alive


class Situation(NamedTuple):
    """What is known of the end of a call."""

    outer: Layer | None  # whose call it was made in
    last: Layer | None  # the layer that ended before
    last_end: int  # how far autograd had counted then
    first: int  # and when this call began
    adjacent: int  # its input is what that one gave
    changed: int  # in place, by this call
    parted: int  # it called modules
    root: Any  # the first argument of the outermost call


class Given(NamedTuple):
    """What a module was called with."""

    module: Any
    tensors: tuple[tuple[str, Any], ...]  # by name


class _Doubt(NamedTuple):
    """A birth that may come to nothing. `since`: how far autograd had counted; `dump`: what was written for it."""

    layer: Layer
    since: int
    batches: int  # that had come
    dump: str | None


class _Scaled(NamedTuple):
    result: weakref.ref[Any]
    bits: int  # of the loss without its scale
    scaler: weakref.ref[Any]

    def may_overflow(self) -> bool:
        """Is the scale one that can make gradients overflow? At 1 and below they are not finite by themselves."""
        scaler = self.scaler()
        return scaler is None or scaler.get_scale() > 1


class Watch:
    """The watch of this process."""

    def __init__(self) -> None:
        self.calls = Routes()
        self._undo: list[Callable[[], None]] = []
        self._original: Callable[..., Any] | None = None
        self.forget()

    def forget(self) -> None:
        """Nothing was seen."""
        self.calls.clear()
        self.action = "record"
        self.all = False  # models, also those to come
        self._known: dict[int, tuple[weakref.ref[Any], ...]] = {}
        self._gone: dict[int, weakref.ref[Any]] = {}  # modules that are, and were not dropped yet
        self._names: dict[str, int] = {}
        self._all: dict[int, Layer] = {}
        self._weights: list[Callable[[], Any]] = []
        self._owners: list[Layer] = []  # of the weights
        self.born: dict[str, Any] | None = None
        self.unused: dict[str, Any] | None = None
        self._doubt: _Doubt | None = None
        self.forgiven = self.later = 0
        self._fresh = False  # another model was met since the birth
        self._same = False  # the next loss is that of the step of the birth
        self._settle()

    def _settle(self) -> None:
        self._suspect: tuple[dict[str, Any], Layer] | None = None
        self._since = 0  # batches that had come then
        self._pending: dict[str, Any] | None = None  # a gradient
        # One of torch.autograd.grad, and how many batches had come then.
        self._apart: tuple[dict[str, Any], int] | None = None
        self._seen: list[Seen] = []  # of gradients
        self._scaled: list[_Scaled] = []

    # ── begin and end ────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, model: Any, action: str) -> None:
        """Watch this model too, or all; what was born before counts no more."""
        if not self._undo:
            self.forget()
            self._undo += [unread(*_frames()), arrivals.install()]
            self._undo.append(loader.start_in_workers(f"{__name__}:rest"))
            self._undo.append(scaler_scale.subscribe(_Scales()))
            self._undo.append(backward.surround(self._passing))
            self._undo.append(module_call.surround(self._surround))
        self.action = action
        self.all = self.all or model is None
        self.born = self._doubt = None
        self._settle()
        if model is not None:
            self.attach(model)
        if "torch" in sys.modules:
            fallback.engine().turn(fallback.ON)

    def leave(self) -> None:
        """Watch nothing any more. What was born can still be asked for."""
        fallback.engine().turn(fallback.OFF)
        fallback.engine().weigh([])
        while self._undo:
            self._undo.pop()()
        self.calls.clear()
        self._known.clear()
        self._names.clear()
        self._all.clear()
        self._settle()

    def _prepare(self) -> None:
        torch = sys.modules["torch"]
        if check.native is not None:
            told = (self.output, self.gradient, self.loss, self.ended, self.passed, _blame)
            check.native.prepare((
                torch.Tensor, torch.nn.Parameter, private.exchange(), private.copy_on_write(), private.sequence_number(),
                private.tracing_state(), _tensors, check.look_slowly, *told, backprop.CALM_NODES,
            ))  # fmt: skip
        else:
            fallback.prepare(self, _watching)
        fallback.engine().weigh(self._weights)
        fallback.engine().turn(fallback.ON)

    def _passing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        made: Callable[..., Any] = fallback.engine().passing(original)
        return made

    def _surround(self, original: Callable[..., Any]) -> Callable[..., Any]:
        self._original = original
        self._prepare()

        def stranger(module: Any, /, *args: Any, **kwargs: Any) -> Any:
            call = original
            if self.all:
                with _watching:
                    call = self.meet(module) or original
            return call(module, *args, **kwargs)

        self._undo.append(unread(stranger))
        return followed(stranger, self.calls)

    # ── models ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def meet(self, module: Any) -> Callable[..., Any] | None:
        """A module is called that is not known: watch it, unless it is part of the data's way."""
        if loader.fetching() is not None or private.tracing_state()() is not None:
            return None
        self.attach(module)
        return self.calls.get(id(module))

    def attach(self, model: Any) -> None:
        """Watch the layers of a model."""
        self._drop_gone()
        found = [one for one in naming.modules(model) if not self._knows(one.module)]
        del found[max(0, MOST_LAYERS - len(self.calls)) :]
        prefix = naming.prefix(model, found, self._names)
        if naming.bare(model) is not model:
            self._add(naming.kind(model), model)
        unseen = False
        for one in found:
            name = naming.joined(prefix, one.name) or naming.kind(model)
            self._add(name, one.module)
            inner = naming.inside(one.module)
            if inner is not one.module and not self._knows(inner):
                self._add(name, inner)
            if one.compiled and not unseen:
                unseen = True
                core.mark(name, NONFINITE_UNSEEN, args={"type": type(one.module).__name__}, level=ESSENTIAL)
        self._fresh = self._fresh or any(one.requires_grad for one in model.parameters())

    def _knows(self, module: Any) -> bool:
        known = self._known.get(id(module))
        return known is not None and known[0]() is module

    def _drop_gone(self) -> None:
        while self._gone:
            address, reference = self._gone.popitem()
            if self._known.get(address, (None,))[0] is reference:
                del self._known[address]
                name = self._all.pop(address).name
                if self._names.get(name) == address:
                    del self._names[name]

    def _add(self, name: str, module: Any) -> None:
        if self._original is None:
            return
        layer = Layer(name, module)
        address = id(module)
        self.calls[address] = _call(layer, module, self._original)
        self._all[address] = layer
        layer.call = lambda: self.calls.get(address)
        self._names.setdefault(name, address)

        gone = weakref.ref(module, partial(self._gone.__setitem__, address))  # no Python code: see `weak.py`
        self._known[address] = (gone, *self.calls.until_gone(module))
        for one in module.parameters(recurse=False):
            if one.requires_grad:
                self._weights.append(weakref.ref(one))
                self._owners.append(layer)

    # ── what was found ───────────────────────────────────────────────────────────────────────────────────────────────

    def output(
        self, layer: Layer, result: Any, given: tuple[Any, ...], names: tuple[str, ...] | None, bits: int, at: Any
    ) -> NonFinite | None:
        """What a module gave is not finite. Returns what the program shall get, if anything."""
        with _watching:
            mild = self._is_mild(bits) and layer.forgiven >= TOLERANCE
            if self._doubt is None and loader.fetching() is None and not mild:
                return self._judge(layer, result, Given(given[0], _named(given, names)), bits, Situation(*at))
        return None

    def _judge(self, layer: Layer, result: Any, given: Given, bits: int, at: Situation) -> NonFinite | None:
        if self._suspect is not None and self._since != arrivals.count():
            self._forgive()
        bad = next(one for one in _tensors(result) if check.look(one))
        facts = self._forward(layer, bad, given, bits, at)
        if self._is_mild(bits) and not layer.loss:
            if self._suspect is None:
                self._suspect, self._since = (facts, layer), arrivals.count()
                fallback.engine().suspect(True)
            return None
        if facts["parameters"] and self._apart is not None and arrivals.count() - self._apart[1] <= 1:
            return self._alarm(self._apart[0])  # an update without an optimizer has used that gradient
        came_in = facts["before"] is not None or not facts["producer"]
        answer = self._alarm(self._suspect[0] if self._suspect is not None and came_in else facts)
        if self.action != "stop" and not (layer.loss or facts["parameters"]) and sys.modules["torch"].is_grad_enabled():
            self._doubt = _Doubt(layer, private.sequence_number()(), arrivals.count(), self._dump)
            fallback.engine().turn(fallback.ON)
            fallback.engine().suspect(True)  # the end of the backward pass is to be told in any case
        return answer

    def _is_mild(self, bits: int) -> bool:
        """Is this no alarm by itself? Masks are full of infinities, and a NaN came to nothing before."""
        return bits == check.INF or self.unused is not None

    def _confirm(self) -> None:
        """The birth that was in doubt stands."""
        self._doubt = None
        self._same = False
        self._settle()
        fallback.engine().turn(fallback.QUIET)

    def _take_back(self, doubt: _Doubt) -> None:
        """The backward pass has ended, and nothing came of the birth."""
        facts, self.born, self._doubt = self.born, None, None
        self.unused = self.unused or facts
        self.forgiven += 1
        doubt.layer.forgiven += 1
        fallback.engine().suspect(False)
        core.mark(doubt.layer.name, NONFINITE_UNUSED, level=ESSENTIAL)
        if doubt.dump is not None:
            sys.modules[BLACKBOX].withdraw(doubt.dump)

    def _forward(self, layer: Layer, bad: Any, given: Given, bits: int, at: Situation) -> dict[str, Any]:
        wrong = None if at.changed else next((one for _, one in given.tensors if check.look(one)), None)
        if wrong is not None:
            return self._came_in(layer, wrong, at)
        found = operation.forward(bad, at.last_end if at.changed else at.first, self._ended())
        known = bool(at.adjacent) or not at.changed
        here = Place(
            "loss" if layer.loss else "forward", known, layer.name, layer.type,
            after=_name(at.last) if at.parted else None,  # code of a module, after the last one that it called
            op=found.op if layer.own or not known else None,
            code=(birth.code_of(given.module) if layer.own else None) or birth.user_code(),
        )  # fmt: skip
        broken = _broken(given.module)
        inputs = Inputs(known, given.tensors if known else (), told=not at.changed, parameters=broken)
        arrival = arrivals.meant(one for _, one in given.tensors)
        return self._certified(here, bits, bad, inputs, arrival, *(() if broken else (bad, *_rows(found))))

    def _came_in(self, layer: Layer, wrong: Any, at: Situation) -> dict[str, Any]:
        """What went into a module was not finite, though all that layers gave was: the data, or code between two layers."""
        found = operation.forward(wrong, 0, self._ended()) if wrong.grad_fn is not None else Origin(None)
        bits, code = check.look(wrong), birth.user_code()
        arrival = arrivals.meant((wrong,))
        stage = None if found.finite else arrivals.stage(arrival)
        if stage is None and not found.finite and _from_outside(wrong, found, at):
            other = arrivals.broken(arrival)
            unseen = arrival is not None and arrival.tensors is None  # what was in it when it came
            stage = LOADER if unseen else LOOP
            if other is not None:
                stage, arrival = arrivals.stage(other), other
        if stage is not None:
            place = Place("data", stage != LOADER, before=layer.name, code=code if stage == LOOP else None, stage=stage)
            spread = arrival is not None and stage != LOOP and bool(check.bad(wrong).all())  # by code of the loop
            carriers = (*arrivals.tensors(arrival), wrong) if arrival is not None and spread else (wrong,)
            return self._certified(place, bits, wrong, NOTHING, arrival, *carriers)
        outer, following = at.outer, layer
        if at.outer is not None and _is_bad(at.root):  # made before the model was called
            outer, following = None, at.outer
        place = Place(
            "loss" if layer.loss else "forward", True, _name(outer), None if outer is None else outer.type,
            after=_name(at.last), before=following.name, op=found.op, code=code,
        )  # fmt: skip
        return self._certified(place, bits, wrong, _kept(found), arrival, wrong, *_rows(found))

    def loss(self, loss: Any, bits: int) -> NonFinite | None:
        """What goes into a backward pass is not finite."""
        with _watching:
            scaled = self._scale_of(loss)
            if scaled is not None and not scaled.bits:
                return None  # only with its scale, which the scaler will lower
            if self._doubt is not None:
                # What was made of a batch without gradients has no nodes by which its loss could be known.
                late = arrivals.count() != self._doubt.batches and not backprop.reaches(loss, self._doubt.since)
                self._confirm()
                if late:
                    self.passed(bits)
                return None
            loss = next(one for one in _tensors(loss) if check.look(one))
            if self._suspect is not None:
                return self._alarm(self._suspect[0], passing=True)
            last = fallback.engine().at()[1]
            found = operation.forward(loss, 0, self._ended())
            arrival = arrivals.meant(() if found.given is None else (found.given,))
            stage = None if found.finite else arrivals.stage(arrival)
            if stage is not None:
                carrier = loss if found.given is None else found.given
                place = Place("data", stage != LOADER, stage=stage)
                return self._alarm(self._certified(place, bits, loss, NOTHING, arrival, carrier), passing=True)
            place = Place("loss", True, after=_name(last), op=found.op, code=birth.user_code())
            return self._alarm(self._certified(place, bits, loss, _kept(found), arrival, *_rows(found)), passing=True)
        return None

    def gradient(
        self, layer: Layer, side: int, gradient: Any, bits: int, good: Layer | None, good_side: int
    ) -> NonFinite | None:
        """A gradient is not finite; that is judged when the pass has ended. `good`: the last one that was."""
        with _watching:
            self._pending = self._certified(
                Place("backward", True), bits, gradient, NOTHING, arrivals.meant(), self._passing_by(gradient)
            )
            self._seen = [Seen(_number(layer, side), True)] if _has_nodes(layer) else []
            if good is not None and _has_nodes(good):
                self._seen.append(Seen(_number(good, good_side), False))
            # By torch.autograd.grad: the next pass tells what came of it, or the next use of a parameter.
            if fallback.engine().at()[3] is None:
                fallback.engine().suspect(True)
                place = backprop.place(self._seen, self._spans(), None)
                self._apart = {**self._pending, **({} if place is None else place._asdict())}, arrivals.count()
        return None

    def _passing_by(self, gradient: Any) -> Carrier:
        return Carrier(gradient, getattr(fallback.engine().at()[3], "grad_fn", None), exact=False)

    def ended(self, index: int, bits: int, seen: int) -> NonFinite | None:
        """A backward pass has ended. `index`: of a parameter whose gradient is not finite; `seen`: how many have one."""
        with _watching:
            pending, self._pending, self._apart = self._pending, None, None
            passed = fallback.engine().at()[3]
            scaled = self._scale_of(passed)
            if self._doubt is not None:
                if index >= 0 or pending is not None or not backprop.reaches(passed, self._doubt.since):
                    self._confirm()
                else:
                    self._take_back(self._doubt)
            elif scaled is not None and scaled.may_overflow():
                self._forgive(pending is not None or index >= 0)
            elif index >= 0 or (pending is not None and not seen):
                if self._suspect is not None:
                    return self._alarm(self._suspect[0])
                return self._alarm(self._located(pending, passed, index, bits))
            else:
                self._forgive(pending is not None)
        return None

    def _located(self, facts: dict[str, Any] | None, passed: Any, index: int, bits: int) -> dict[str, Any]:
        """The certificate of a gradient: who made it, by what was seen of others."""
        weights = [
            (layer, one().grad) for layer, one in zip(self._owners, self._weights, strict=True) if one() is not None
        ]
        bad = {layer: check.look(gradient) != 0 for layer, gradient in weights if gradient is not None}
        for layer, gradient in weights:
            if gradient is not None and check.look(gradient):
                bad[layer] = True
        seen = self._seen if facts is not None else []
        place = backprop.place(
            [*seen, *(Seen(_number(layer, 0), wrong) for layer, wrong in bad.items() if _has_nodes(layer))],
            self._spans(),
            getattr(passed, "grad_fn", None),
        )
        if facts is None and _has_peers():  # their gradients are in ours
            owner = self._owners[index]
            place = Place("gradient", False, owner.name, owner.type)
        elif place is None or (facts is None and sum(bad.values()) == 1 and next(iter(bad)) is not self._owners[index]):
            owner = self._owners[index]
            place = Place("gradient", True, owner.name, owner.type)
        if facts is None:
            facts = self._certified(place, bits, self._weights[index]().grad, NOTHING, arrivals.meant())
        return {**facts, **place._asdict()}

    def _spans(self) -> list[Span]:
        return [Span(layer, *_range(layer)) for layer in self._all.values() if _range(layer)[1]]

    def _ended(self) -> list[tuple[int, int]]:
        """The numbers of the nodes that the last calls of layers have made: all that these gave was finite."""
        return [(one.first, one.end) for one in self._spans()]

    def passed(self, bits: int) -> None:
        """A backward pass begins after the first birth, with a loss of which these are the bits."""
        with _watching:
            if not bits and self._fresh:
                self._settle()
                self._leave_broken()
                fallback.engine().turn(fallback.ON)
            elif bits and not self._same:
                self.later += 1
                arrival = arrivals.meant() if self.later <= MOST_MARKS else None
                if self.later <= MOST_MARKS:
                    core.mark("again", NONFINITE, key=None if arrival is None else arrival.key)
            self._same = False

    def _leave_broken(self) -> None:
        """Look no more at parameters of a model that was given up: their gradients stay as they are."""
        kept = [
            (one, layer)
            for one, layer in zip(self._weights, self._owners, strict=True)
            if (weight := one()) is not None and not (weight.grad is not None and check.look(weight.grad))
        ]
        self._weights[:], self._owners[:] = (
            [one for one, _ in kept],
            [layer for _, layer in kept],
        )  # others hold the lists

    # ── judging ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _certified(
        self, place: Place, bits: int, tensor: Any, inputs: Inputs, arrival: Arrival | None, *carriers: Any
    ) -> dict[str, Any]:
        found = [one if isinstance(one, Carrier) else Carrier(one, one.grad_fn) for one in carriers if one is not None]
        return birth.certificate(place, bits, tensor, inputs, found, arrival, scaled=bool(self._scaled))

    def _scale_of(self, loss: Any) -> _Scaled | None:
        return next((one for one in self._scaled if one.result() is loss), None) if loss is not None else None

    def scaled(self, result: Any, loss: Any, scaler: Any) -> None:
        """A gradient scaler has made `result` of `loss`."""
        if type(result) is sys.modules["torch"].Tensor:
            made = _Scaled(weakref.ref(result), check.look(loss), weakref.ref(scaler))
            self._scaled = [*self._scaled[1 - MOST_SCALED :], made]

    def _forgive(self, more: bool = False) -> None:
        """A step has come to its end, and nothing came of what was seen."""
        if self._suspect is not None:
            self.forgiven += 1
            self._suspect[1].forgiven += 1
            self._suspect = None
        self.forgiven += more
        fallback.engine().suspect(False)

    def _alarm(self, facts: dict[str, Any], *, passing: bool = False) -> NonFinite | None:
        """This is the birth. `passing`: the loss that comes of it goes into its backward pass now."""
        self.born = facts
        self._fresh = False
        before = not passing and facts["where"] in ("data", "forward", "loss")
        self._same = before and fallback.engine().at()[3] is None
        self._settle()
        fallback.engine().turn(fallback.QUIET)
        core.mark(facts["layer"] or facts["where"], NONFINITE, key=facts["batch"], args=facts, level=ESSENTIAL)
        box = sys.modules.get(BLACKBOX)
        self._dump: str | None = None if box is None else box.trigger("nonfinite", certificate=facts)
        said = birth.sentence(facts)
        if self.action == "warn":
            _warn(said)
        return NonFinite(said, facts) if self.action == "stop" else None


_watch = Watch()


class _Scales:
    """Is told of gradient scalers at work."""

    def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        scaler = args[0]
        loss = args[1] if len(args) > 1 else kwargs.get("outputs")
        return (scaler, loss) if loss is not None and scaler.is_enabled() else None

    def after(self, given: Any, result: Any, _error: BaseException | None) -> None:
        if given is not None:
            scaler, loss = given
            _watch.scaled(result, loss, scaler)


def rest() -> None:
    """Leave modules alone: this is a loader worker, and modules that are called in it are transforms."""
    fallback.engine().turn(fallback.OFF)


def _blame(error: BaseException) -> None:
    """Take the blame for a failure of the C part."""
    with _watching:
        raise error


def _nobody() -> None:
    return None


def _name(layer: Layer | None) -> str | None:
    return None if layer is None else layer.name


def _tensors(value: Any) -> tuple[Any, ...]:
    return tuple(tensors_of(value, sys.modules["torch"].Tensor))


def _named(given: tuple[Any, ...], names: tuple[str, ...] | None) -> tuple[tuple[str, Any], ...]:
    """The tensors among the arguments of a call, by name or place; the first of them is the module."""
    words = [str(place) for place in range(len(given) - 1 - len(names or ()))] + list(names or ())
    found = []
    for word, value in zip(words, given[1:], strict=True):
        tensors = _tensors(value)
        found += [(word if len(tensors) == 1 else f"{word}.{place}", one) for place, one in enumerate(tensors)]
    return tuple(found)


def _broken(module: Any) -> tuple[str, ...]:
    """Its own parameters and buffers that are not finite: then it is not the batch that made it."""
    own = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
    return tuple(name for name, one in own if check.look(one))


def _kept(found: Origin) -> Inputs:
    """What is known of what went into an operation."""
    return Inputs(found.given is not None, () if found.given is None else (("self", found.given),))


def _rows(found: Origin) -> list[Carrier]:
    """What an operation gave and got, to tell items by."""
    gave = [] if found.gave is None else [Carrier(found.gave, found.node)]
    return gave if found.given is None else [*gave, Carrier(found.given, found.given.grad_fn)]


def _from_outside(wrong: Any, found: Origin, at: Situation) -> bool:
    """Did this tensor come from outside of the model, as it is?"""
    if found.op is not None:
        return False
    if at.last is None and at.outer is None:
        return True
    if at.last is None:
        return _is_bad(at.root)
    return at.outer is None and wrong.grad_fn is None and sys.modules["torch"].is_grad_enabled()


def _is_bad(value: Any) -> bool:
    return isinstance(value, sys.modules["torch"].Tensor) and check.look(value) != 0


def _has_peers() -> bool:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return False
    size: int = distributed.get_world_size()
    return size > 1


def _range(layer: Layer) -> tuple[int, int]:
    """The numbers of the nodes that its last call has made."""
    call = layer.call()
    return (0, 0) if call is None else (call.first, call.end)


def _has_nodes(layer: Layer) -> bool:
    """Has its last call made any? Not where a checkpoint makes them in the backward pass: then it has no place among others."""
    first, end = _range(layer)
    return end > first


def _number(layer: Layer, side: int) -> int:
    return _range(layer)[1 - side]


def _call(layer: Layer, module: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """What is called in the place of `nn.Module.__call__` for a layer."""
    if check.native is None:
        return fallback.Call(layer, original)
    # What comes to it and what goes out, in backward.
    hooked = layer.own or (not layer.loss and backprop.is_asked(module))
    hooks = (tuple(check.native.hook(layer, side, output) for output in range(OUTPUTS)) for side in (0, 1))
    made: Callable[..., Any] = check.native.watched(layer, original, *hooks, hooked, safe.hooks(module))
    return made


def _warn(message: str) -> None:
    import logging

    logging.getLogger("sonde").warning(message)


def _frames() -> list[Any]:
    """All functions that run between the modules of a program."""
    found: list[Any] = [guard.__enter__, tensors_of]
    for module in (
        sys.modules[__name__],
        arrivals,
        backprop,
        birth,
        check,
        fallback,
        memory,
        operation,
        private,
        items,
    ):
        parts = [one for one in vars(module).values() if getattr(one, "__module__", None) == module.__name__]
        parts += [inner for one in parts if isinstance(one, type) for inner in vars(one).values()]
        found += [one for one in parts if hasattr(one, "__code__")]
    return found
