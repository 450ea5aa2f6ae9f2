"""The models that are watched: their layers, by the addresses of their modules."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from sonde.events import core
from sonde.hooks.torch import private
from sonde.hooks.torch.outermost import until_gone
from sonde.nonfinite import backward, check, fallback, skip
from sonde.nonfinite.backward import NodeRange
from sonde.probes.layers import names
from sonde.store.probe import NONFINITE_UNSEEN
from sonde.store.record import ESSENTIAL

MOST_LAYERS = 20_000
OUTPUTS = 4  # of one operation whose gradients are inspected


class WatchedLayer:
    """A module that is watched."""

    __slots__ = ("__weakref__", "call", "calm", "forgiven", "loss", "name", "own", "type")

    def __init__(self, name: str, module: Any) -> None:
        self.name = name
        self.type = type(names.inside(module)).__name__
        self.loss = isinstance(module, private.loss_class())
        self.own = not type(module).__module__.startswith("torch.nn.")  # code of the program
        self.calm = not self.own and backward.is_calm(module)
        self.forgiven = 0  # suspicions that led to nothing
        self.call: Callable[[], Any] = _no_call  # replaces the module's call; not kept alive

    def nodes(self) -> tuple[int, int]:
        """The range of autograd nodes that its last call has made: first and end."""
        call = self.call()
        return (0, 0) if call is None else (call.first, call.end)

    def has_nodes(self) -> bool:
        """Has its last call made any? Not where a checkpoint makes them in the backward pass."""
        first, end = self.nodes()
        return end > first


class WatchedModels:
    """All layers that are watched in this process."""

    def __init__(self) -> None:
        self.calls: dict[int, Callable[..., Any]] = {}
        self.original: Callable[..., Any] | None = None  # nn.Module.__call__
        self.weights: list[Callable[[], Any]] = []
        self.owners: list[WatchedLayer] = []  # of the weights
        self._known: dict[int, tuple[weakref.ref[Any], ...]] = {}
        self._gone: dict[int, weakref.ref[Any]] = {}  # collected modules that were not dropped yet
        self._names: dict[str, int] = {}
        self._layers: dict[int, WatchedLayer] = {}

    def clear(self) -> None:
        """Forget all models."""
        self.calls.clear()
        self.weights, self.owners = [], []  # the engine may hold the old lists
        self._known.clear()
        self._gone.clear()
        self._names.clear()
        self._layers.clear()

    def attach(self, model: Any) -> bool:
        """Watch the layers of a model; returns whether it can be trained."""
        self._drop_gone()
        found = [one for one in names.modules(model) if not self._knows(one.module)]
        del found[max(0, MOST_LAYERS - len(self.calls)) :]
        prefix = names.prefix(model, found, self._names)
        if names.bare(model) is not model:
            self._add(names.kind(model), model)
        compiled = False
        for one in found:
            name = names.joined(prefix, one.name) or names.kind(model)
            self._add(name, one.module)
            inner = names.inside(one.module)
            if inner is not one.module and not self._knows(inner):
                self._add(name, inner)
            if one.compiled and not compiled:
                compiled = True
                core.mark(name, NONFINITE_UNSEEN, args={"type": type(one.module).__name__}, level=ESSENTIAL)
        return any(one.requires_grad for one in model.parameters())

    def _knows(self, module: Any) -> bool:
        known = self._known.get(id(module))
        return known is not None and known[0]() is module

    def _drop_gone(self) -> None:
        while self._gone:
            address, reference = self._gone.popitem()
            if self._known.get(address, (None,))[0] is reference:
                del self._known[address]
                name = self._layers.pop(address).name
                if self._names.get(name) == address:
                    del self._names[name]

    def _add(self, name: str, module: Any) -> None:
        if self.original is None:
            return
        layer = WatchedLayer(name, module)
        address = id(module)
        self.calls[address] = _call(layer, module, self.original)
        self._layers[address] = layer
        layer.call = lambda: self.calls.get(address)
        self._names.setdefault(name, address)

        gone = weakref.ref(module, partial(self._gone.__setitem__, address))  # no Python code: see `weak.py`
        self._known[address] = (gone, until_gone(self.calls, module))
        for one in module.parameters(recurse=False):
            if one.requires_grad:
                self.weights.append(weakref.ref(one))
                self.owners.append(layer)

    def node_ranges(self) -> list[NodeRange]:
        """The autograd nodes that the last calls of layers have made: all that these returned was finite."""
        return [NodeRange(layer, *layer.nodes()) for layer in self._layers.values() if layer.nodes()[1]]

    def bad_gradients(self) -> dict[WatchedLayer, bool]:
        """Layers whose parameters have gradients, and whether any of these is not finite."""
        bad: dict[WatchedLayer, bool] = {}
        for layer, weight in zip(self.owners, self.weights, strict=True):
            gradient = getattr(weight(), "grad", None)
            if gradient is not None:
                bad[layer] = check.look(gradient) != 0 or bad.get(layer, False)
        return bad

    def drop_bad_weights(self) -> None:
        """Ignore parameters of a model that was given up: their gradients stay as they are."""
        good = [
            (one, layer)
            for one, layer in zip(self.weights, self.owners, strict=True)
            if (weight := one()) is not None and not (weight.grad is not None and check.look(weight.grad))
        ]
        self.weights[:], self.owners[:] = [one for one, _ in good], [layer for _, layer in good]  # the engine holds it


def _no_call() -> None:
    return None


def _call(layer: WatchedLayer, module: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces `nn.Module.__call__` for a layer."""
    if check.native is None:
        return fallback.LayerCall(layer, original)
    # What comes to it and what goes out, in backward.
    hooked = layer.own or (not layer.loss and backward.is_asked(module))
    hooks = (tuple(check.native.hook(layer, side, output) for output in range(OUTPUTS)) for side in (0, 1))
    made: Callable[..., Any] = check.native.watched(layer, original, *hooks, hooked, skip.hooks(module))
    return made
