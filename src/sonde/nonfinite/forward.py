"""Which place produced a non-finite value of the forward pass: a layer, code between two layers, or the data."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.nonfinite import batches, certificate, check, operation
from sonde.nonfinite.batches import LOADER, LOOP
from sonde.nonfinite.certificate import NOTHING, Evidence, Inputs, Location
from sonde.nonfinite.items import Carrier
from sonde.nonfinite.operation import Origin
from sonde.probes.layers.backward import tensors_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sonde.nonfinite.models import WatchedLayer

    Ranges = Sequence[tuple[int, int]]  # nodes whose results were finite


class CallEnd(NamedTuple):
    """What is known when a layer's call ends."""

    outer: WatchedLayer | None  # in whose call it was made
    last: WatchedLayer | None  # the layer that ended before
    last_end: int  # autograd's count of nodes then,
    first: int  # and when this call began
    adjacent: int  # its input is the result of that one
    changed: int  # in place, by this call
    parted: int  # it called modules
    root: Any  # the first argument of the outermost call


class Given(NamedTuple):
    """The arguments of a module's call."""

    module: Any
    tensors: tuple[tuple[str, Any], ...]  # by name


def tensors(value: Any) -> tuple[Any, ...]:
    """The tensors in an argument or a result."""
    return tuple(tensors_of(value, sys.modules["torch"].Tensor))


def given(arguments: tuple[Any, ...], names: tuple[str, ...] | None) -> Given:
    """The tensors among the arguments of a call, by name or position; the first argument is the module."""
    words = [str(place) for place in range(len(arguments) - 1 - len(names or ()))] + list(names or ())
    found = []
    for word, value in zip(words, arguments[1:], strict=True):
        inside = tensors(value)
        found += [(word if len(inside) == 1 else f"{word}.{place}", one) for place, one in enumerate(inside)]
    return Given(arguments[0], tuple(found))


def of_result(layer: WatchedLayer, bad: Any, call: Given, bits: int, at: CallEnd, finite: Ranges) -> Evidence:
    """The result of a layer is not finite. `finite`: the nodes of layers whose results were."""
    wrong = None if at.changed else next((one for _, one in call.tensors if check.look(one)), None)
    if wrong is not None:
        return _of_input(layer, wrong, at, finite)
    found = operation.forward(bad, at.last_end if at.changed else at.first, finite)
    known = bool(at.adjacent) or not at.changed
    here = Location(
        "loss" if layer.loss else "forward", known, layer.name, layer.type,
        after=_name(at.last) if at.parted else None,  # code of a module, after the last one that it called
        op=found.op if layer.own or not known else None,
        code=(certificate.code_of(call.module) if layer.own else None) or certificate.user_code(),
    )  # fmt: skip
    broken = _broken(call.module)
    inputs = Inputs(known, call.tensors if known else (), unchanged=not at.changed, parameters=broken)
    carriers = [] if broken else [_carrier(bad), *_carriers(found)]
    return Evidence(here, bits, bad, inputs, batches.meant(one for _, one in call.tensors), carriers)


def _of_input(layer: WatchedLayer, wrong: Any, at: CallEnd, finite: Ranges) -> Evidence:
    """An argument of a layer is not finite, though the results of all layers were: the data, or code between two layers."""
    found = operation.forward(wrong, 0, finite) if wrong.grad_fn is not None else Origin(None)
    bits, code = check.look(wrong), certificate.user_code()
    arrival = batches.meant((wrong,))
    stage = None if found.finite else batches.stage(arrival)
    if stage is None and not found.finite and _from_outside(wrong, found, at):
        other = batches.broken(arrival)
        unseen = arrival is not None and arrival.tensors is None  # what was in it when it came
        stage = LOADER if unseen else LOOP
        if other is not None:
            stage, arrival = batches.stage(other), other
    if stage is not None:
        place = Location("data", stage != LOADER, before=layer.name, code=code if stage == LOOP else None, stage=stage)
        spread = arrival is not None and stage != LOOP and bool(check.bad(wrong).all())  # by code of the loop
        carriers = (*batches.tensors(arrival), wrong) if arrival is not None and spread else (wrong,)
        return Evidence(place, bits, wrong, NOTHING, arrival, [_carrier(one) for one in carriers if one is not None])
    outer, following = at.outer, layer
    if at.outer is not None and _is_bad(at.root):  # made before the model was called
        outer, following = None, at.outer
    place = Location(
        "loss" if layer.loss else "forward", True, _name(outer), None if outer is None else outer.type,
        after=_name(at.last), before=following.name, op=found.op, code=code,
    )  # fmt: skip
    return Evidence(place, bits, wrong, _inputs(found), arrival, [_carrier(wrong), *_carriers(found)])


def of_loss(loss: Any, bits: int, last: WatchedLayer | None, finite: Ranges) -> Evidence:
    """The loss is not finite, though the results of all layers were. `last`: the layer that ended last."""
    found = operation.forward(loss, 0, finite)
    arrival = batches.meant(() if found.given is None else (found.given,))
    stage = None if found.finite else batches.stage(arrival)
    if stage is not None:
        carrier = loss if found.given is None else found.given
        place = Location("data", stage != LOADER, stage=stage)
        return Evidence(place, bits, loss, NOTHING, arrival, [_carrier(carrier)])
    place = Location("loss", True, after=_name(last), op=found.op, code=certificate.user_code())
    return Evidence(place, bits, loss, _inputs(found), arrival, _carriers(found))


def _name(layer: WatchedLayer | None) -> str | None:
    return None if layer is None else layer.name


def _broken(module: Any) -> tuple[str, ...]:
    """Its own parameters and buffers that are not finite: then it is not the batch that made it."""
    own = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
    return tuple(name for name, one in own if check.look(one))


def _inputs(found: Origin) -> Inputs:
    """What is known of the input of an operation."""
    return Inputs(found.given is not None, () if found.given is None else (("self", found.given),))


def _carrier(tensor: Any) -> Carrier:
    return Carrier(tensor, tensor.grad_fn)


def _carriers(found: Origin) -> list[Carrier]:
    """The result and the input of an operation, to find items by."""
    gave = [] if found.gave is None else [Carrier(found.gave, found.node)]
    return gave if found.given is None else [*gave, _carrier(found.given)]


def _from_outside(wrong: Any, found: Origin, at: CallEnd) -> bool:
    """Did this tensor come from outside of the model, unchanged?"""
    if found.op is not None:
        return False
    if at.last is None and at.outer is None:
        return True
    if at.last is None:
        return _is_bad(at.root)
    return at.outer is None and wrong.grad_fn is None and sys.modules["torch"].is_grad_enabled()


def _is_bad(value: Any) -> bool:
    return isinstance(value, sys.modules["torch"].Tensor) and check.look(value) != 0
