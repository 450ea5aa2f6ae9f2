"""The modules of the models that are recorded: which are layers, and what they are called.

A layer is a module that calls no other one: most have no children, but torch's attention has some, and computes all
itself. So a module with children counts as a layer until it calls one of them. A module may change at any time: at each
outermost call its parts are compared with those that it had. Names are those of the outermost model that was called.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from sonde.events import core
from sonde.probes import step
from sonde.probes.layers import names
from sonde.probes.layers.backward import nbytes
from sonde.store.probe import LAYER, LAYER_BACKWARD
from sonde.store.record import DETAIL

MOST_LAYERS = 20_000


class LayerOptions(NamedTuple):
    """What of a model is recorded; the parameters of `trace_model_instance`."""

    parameters: bool = True
    forward: bool = True
    activations: bool = True
    backward: bool = True
    gradients: bool = True
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    leaf_only: bool = True

    def wants(self, name: str) -> bool:
        """Is the layer of this name recorded?"""
        included = not self.include or any(part in name for part in self.include)
        return included and not any(part in name for part in self.exclude)


class RecordedLayer:
    """One module of a model, as it is recorded."""

    __slots__ = ("backward", "compiled", "forward", "model", "module", "name", "options", "tentative", "type")

    def __init__(self, name: str, module: Any, options: LayerOptions, compiled: bool, model: str) -> None:
        self.backward = core.Span(name, LAYER_BACKWARD, level=DETAIL, base=step.phases) if options.backward else None
        self.forward = core.Span(name, LAYER, level=DETAIL, base=step.phases) if options.forward else None
        self.name = name
        self.model = model  # what that is called
        self.type = type(names.inside(module)).__name__
        self.module: weakref.ref[Any] = weakref.ref(module)
        self.options = options
        self.compiled = compiled
        self.tentative = _is_tentative(module, options)

    def fits(self, name: str, compiled: bool) -> bool:
        """Is it still recorded as it should be, if this is its name now?"""
        module = self.module()
        same = (name, compiled) == (self.name, self.compiled)
        return same and module is not None and _is_tentative(module, self.options) == self.tentative

    def facts(self) -> dict[str, Any]:
        """What is said of it: once, and again when its gradients are known."""
        found: dict[str, Any] = {"type": self.type, "parameters": None, "gradients": None, "compiled": self.compiled}
        found["model"] = self.model
        module = self.module()
        if module is not None and self.options.parameters:
            own = _parameters(names.inside(module))
            grads = [one.grad for one in own if one.grad is not None]
            found["parameters"] = _total(own)
            if grads or not any(one.requires_grad for one in own):
                found["gradients"] = _total(grads)
        return found


def _is_tentative(module: Any, options: LayerOptions) -> bool:
    """It has children, and only leaves are wanted: it is a layer unless it calls one of them."""
    return options.leaf_only and next(module.children(), None) is not None


class _KnownModule:
    """A module of a model that was looked at."""

    __slots__ = ("called", "model", "module", "name")

    def __init__(self, module: weakref.ref[Any], called: weakref.ref[Any], name: str, model: int) -> None:
        self.module = module
        self.called = called  # ends the calls for it when it is gone
        self.name = name
        self.model = model  # the address of the one that it has its name from


class _RootModule:
    """A module that was called by no other one, or chosen, as it was when it was looked at."""

    __slots__ = ("name", "options", "prefix", "shape")

    def __init__(self, options: LayerOptions, prefix: str, shape: tuple[int, ...], name: str) -> None:
        self.options = options
        self.prefix = prefix
        self.name = name  # of the model that it is, or a part of
        self.shape = shape


class Models:
    """All modules of models that were met. `replace` gives what is called in the place of a layer, if it is wanted."""

    def __init__(self, replace: Callable[[RecordedLayer, bool], Callable[..., Any] | None]) -> None:
        self.calls: dict[int, Callable[..., Any]] = {}  # what the gate calls, by the address of the module
        self._replace = replace
        self.clear()

    def clear(self) -> None:
        """None was met."""
        self.calls.clear()
        self._known: dict[int, _KnownModule] = {}  # by their addresses
        self._gone: dict[int, weakref.ref[Any]] = {}  # those that are, and were not dropped yet
        self._roots: dict[int, _RootModule] = {}
        self._layers: dict[int, RecordedLayer] = {}
        self._names: dict[str, int] = {}  # who has a name, by address

    def layers(self) -> list[RecordedLayer]:
        """Those that are recorded."""
        return list(self._layers.values())  # a module may go meanwhile

    def update(self, model: Any, options: LayerOptions | None) -> None:
        """Attach this model if it has changed, or, with these options, if it is new. It runs at each step."""
        self._drop_gone()
        root = self._roots.get(id(model))
        if root is None:
            if options is not None:
                self.attach(model, options)
        elif root.shape != names.shape(model):
            self.attach(model, root.options)

    def remove(self, layer: RecordedLayer) -> None:
        """This is not a layer after all."""
        module = layer.module()
        if module is not None and self._layers.get(id(module)) is layer:
            self.calls.pop(id(module), None)
            self._layers.pop(id(module), None)

    def attach(self, model: Any, options: LayerOptions) -> int:
        """Record the layers of a model, those that are new or have another name now; returns how many these are."""
        self._drop_gone()
        shape = names.shape(model)
        inside = frozenset(shape)
        self._drop_removed(model, inside)
        whole = self._whole(model, inside)
        found = [one for one in names.layers(model) if self._is_unnamed(one.module, inside)]
        for one in found:
            self._free_name(id(one.module))
        owner = id(model) if whole is None else whole.model
        outer = self._roots.get(owner)
        if whole is None or outer is None:  # the latter if it went just now
            prefix = self._prefix(model, found)
            whose = prefix or names.kind(model)
        else:
            only_wrapped = whole.name == (outer.prefix or names.kind(model))
            prefix, options, whose = outer.prefix if only_wrapped else whole.name, outer.options, outer.name
        self._roots[id(model)] = _RootModule(options, prefix, shape, whose)
        count = 0
        for one in found:
            name = names.joined(prefix, one.name) or names.kind(model)
            count += self._take(one, name, owner, options, whose)
        if not self._knows(model):  # it only wraps the model
            self._know(model, names.kind(model), owner)
        return count

    def forget(self, model: Any) -> None:
        """Look at this model as if for the first time."""
        for module in model.modules():
            if self._knows(module):
                self._drop(id(module))

    def _knows(self, module: Any) -> bool:
        known = self._known.get(id(module))
        return known is not None and known.module() is module

    def _whole(self, model: Any, inside: frozenset[int]) -> _KnownModule | None:
        """What is known of this model if it is a part of a larger one, which names it."""
        return None if self._is_unnamed(model, inside) else self._known.get(id(model))

    def _is_unnamed(self, module: Any, inside: frozenset[int]) -> bool:
        """Is a name needed? One that a part of this model gave, or a model that is gone, does not count."""
        known = self._known.get(id(module))
        return known is None or known.model in inside or known.model not in self._roots

    def _prefix(self, model: Any, found: list[names.Module]) -> str:
        """What stands before the names: what did before, as long as that distinguishes them from those of others."""
        root = self._roots.get(id(model))
        if root is not None and not any(names.joined(root.prefix, one.name) in self._names for one in found):
            return root.prefix
        return names.prefix(model, found, self._names)

    def _take(self, one: names.Module, name: str, model: int, options: LayerOptions, whose: str) -> bool:
        """Give this module a name, and record it; returns whether it is a layer that was not recorded under this name."""
        address = id(one.module)
        if not self._knows(one.module):
            if len(self._layers) >= MOST_LAYERS:
                return False
            self._know(one.module, name, model)
            return self._add(RecordedLayer(name, one.module, options, one.compiled, whose), options.wants(name))
        known, layer = self._known[address], self._layers.get(address)
        known.name, known.model = name, model
        self._names.setdefault(name, address)
        if layer is None or layer.fits(name, one.compiled):
            return False
        return self._add(RecordedLayer(name, one.module, layer.options, one.compiled, whose), True)

    def _add(self, layer: RecordedLayer, wanted: bool) -> bool:
        """Follow this layer; returns whether it is recorded."""
        module = layer.module()
        call = None if module is None else self._replace(layer, wanted)
        if call is None:
            return False
        self.calls[id(module)] = call
        if wanted:
            self._layers[id(module)] = layer
        return wanted

    def _know(self, module: Any, name: str, model: int) -> None:
        address = id(module)

        # No Python code runs when it goes, in which a signal handler could raise in vain: `_drop_gone` does the rest.
        gone = weakref.ref(module, partial(self._gone.__setitem__, address))
        self._known[address] = _KnownModule(gone, weakref.ref(module, partial(self.calls.pop, address)), name, model)
        self._names.setdefault(name, address)

    def _drop_gone(self) -> None:
        while self._gone:
            address, reference = self._gone.popitem()
            known = self._known.get(address)
            if known is not None and known.module is reference:
                self._drop(address)

    def _drop_removed(self, model: Any, inside: frozenset[int]) -> None:
        """What was taken out of a model is none of its layers any more, though it may live on."""
        for address in list(self._known):  # a module may go meanwhile
            known = self._known.get(address)
            if known is not None and known.model == id(model) and address not in inside:
                self._drop(address)

    def _drop(self, address: int) -> None:
        self._free_name(address)
        for one in (self._known, self.calls, self._roots, self._layers):
            one.pop(address, None)
        for root in list(self._roots.values()):
            if address in root.shape:
                root.shape = ()  # another module may get this address

    def _free_name(self, address: int) -> None:
        known = self._known.get(address)
        if known is not None and self._names.get(known.name) == address:
            del self._names[known.name]


def _total(tensors: list[Any]) -> int | None:
    sizes = [nbytes(one) for one in tensors]
    return None if None in sizes else sum(size or 0 for size in sizes)


def _parameters(module: Any) -> list[Any]:
    """A module's own parameters, also those that its parametrizations are made of."""
    own = list(module.parameters(recurse=False))
    for name, child in module.named_children():
        if name == names.PARAMETRIZED:
            own.extend(child.parameters())
    return own
