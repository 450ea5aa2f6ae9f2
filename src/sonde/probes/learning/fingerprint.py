"""Fingerprints of a training, every N steps: inputs, the output of each leaf layer, gradients and parameters (before and after).

A fingerprint is a digest of all bits (on a device: sums of them as integers) and the sum as a float. Two runs that compute the same
have the same ones; where they part, the first that differs names the layer and the direction. Between two such steps nothing is
registered with torch. Of a model that torch.compile took, layers are not seen: inputs, output, gradients and parameters are.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from xxhash import xxh3_64_intdigest

from sonde import weak
from sonde.events import core
from sonde.guard import guard
from sonde.hooks.torch import private
from sonde.hooks.torch.module import module_call
from sonde.hooks.torch.outermost import replaced, until_gone
from sonde.hooks.torch.status import functions_of, unread
from sonde.native import fingerprints
from sonde.probes import step
from sonde.probes.disable import switch_off
from sonde.probes.layers import names as naming
from sonde.probes.layers.backward import tensors_of
from sonde.probes.learning import randomness
from sonde.probes.learning.rate import at_step
from sonde.store.probe import FINGERPRINT, FINGERPRINT_DEVICE
from sonde.values import digest
from sonde.weak import WeakTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from weakref import ref

    from sonde.config import Settings

native: Any = fingerprints  # None: C was not built
DOING = "taking fingerprints"
INPUT, BEFORE, FORWARD, BACKWARD, UPDATE = "input", "before", "forward", "backward", "update"
RANDOM = "random"  # a mark: the state of random numbers as a model is called
RANDOM_EVERY = 10  # steps at least between two of them: they are large
BITS = FINGERPRINT_DEVICE - 1  # of a digest
INTEGERS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}


def install(settings: Settings) -> Callable[[], None]:
    """Take fingerprints every so many steps, as the setting says; 0: never."""
    if not settings.fingerprint:
        return lambda: None
    return Fingerprints(settings.fingerprint).start()


def named(direction: str, name: str) -> Any:
    """The span whose name and category a fingerprint has."""
    return core.Span(name, f"{FINGERPRINT}{direction}")


class _Parameter(NamedTuple):
    """What the fingerprints of a parameter are called."""

    before: Any
    gradient: Any
    value: Any


class Fingerprints:
    """Those of this process. Modules are known by their addresses, as long as they live."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._leave: list[Callable[[], None]] = []
        self._armed: list[Callable[[], None]] = []  # what ends the replacement of calls
        self._calls: dict[int, Callable[..., Any]] = {}  # what is called in the place of modules
        self._gone: dict[int, ref[Any]] = {}  # what removes them when a module goes
        self._parameters: WeakTable[_Parameter] = WeakTable()
        self._inputs: list[Any] = []
        self._output = named(FORWARD, "output")
        self._original: Callable[..., Any] = _nothing
        self._inside = False  # a model that trains is called, in a step that is due
        self._updated: int | None = None  # the step after which parameters were last written
        self._before: tuple[int, list[int]] = (-1, [])  # a step, and the models whose parameters were written before it
        self._random: int | None = None  # the step in which the state of random numbers was last written
        self._guard = guard(DOING, then=self._give_up)
        self._write = self._guard(write_all)

    def start(self) -> Callable[[], None]:
        """Begin; the returned function ends it."""
        self._arm()
        self._leave = [self._disarm, unread(*_frames()), at_step(self._stepped)]
        return self._end

    def _arm(self) -> None:
        if not self._armed:
            self._armed = [module_call.replace_all(self._replaced)]

    def _disarm(self) -> None:
        while self._armed:
            self._armed.pop()()

    def _end(self) -> None:
        while self._leave:
            self._leave.pop()()
        self._calls.clear()

    def _give_up(self) -> None:
        """A failure switches this probe off, and a mark in the run says so."""
        self._inside = False
        self._end()
        switch_off("fingerprint", DOING)

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _stepped(self, optimizer: Any) -> None:
        """An optimizer has stepped, and its gradients are still there. Calls are replaced only if this step, or the next one, is due."""
        number = core.get_context()[0] or 0
        if number % self._every == 0:
            self._arm()
            with self._guard:
                self._write_parameters(optimizer)
                self._updated = number
        elif (number + 1) % self._every == 0:
            self._arm()
        else:
            self._disarm()

    def _write_parameters(self, optimizer: Any) -> None:
        if not step.phases.on:
            return
        every = [one for group in optimizer.param_groups for one in group["params"]]
        get = self._parameters.get
        known = [get(one) or self._name(one, f"parameter {number}") for number, one in enumerate(every)]
        write_many([one.gradient for one in known], [one.grad for one in every])
        write_many([one.value for one in known], every)

    def _name(self, parameter: Any, name: str) -> _Parameter:
        """Give a parameter its name; one that no model has shown has a number."""
        made = self._parameters[parameter] = _Parameter(
            *(named(direction, name) for direction in (BEFORE, BACKWARD, UPDATE))
        )
        return made

    # ── calls of modules ─────────────────────────────────────────────────────────────────────────────────────────────

    def _replaced(self, original: Callable[..., Any]) -> Callable[..., Any]:
        self._original = original
        return replaced(self._meet, self._calls)

    def _meet(self, *args: Any, **kwargs: Any) -> Any:
        """A module is called for the first time: get to know it and those in it."""
        module = args[0]
        with self._guard:
            _prepare()
            layers = list(naming.layers(module))
            compiled = any(one.compiled for one in layers)
            for one in layers:
                leaf = next(one.module.children(), None) is None and not compiled
                self._call(one.module, one.name or naming.kind(module) if leaf else None)
            if id(module) not in self._calls:  # it only wraps the model
                self._call(module, None)
            for name, parameter in naming.parameters(module):
                self._name(parameter, name)
        return self._calls.get(id(module), self._original)(*args, **kwargs)

    def _call(self, module: Any, leaf: str | None) -> None:
        """What is called in the place of a module, from now on. `leaf`: the name of a leaf layer."""
        layer = None if leaf is None else named(FORWARD, leaf)

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._inside:
                output = self._original(*args, **kwargs)
                if layer is not None:
                    self._write(layer, output)
                return output
            return self._outermost(layer, args, kwargs)

        self._gone[id(module)] = until_gone(self._calls, module)
        self._calls[id(module)] = call

    def _outermost(self, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A module is called by no other one: it is a model, or a loss function."""
        with self._guard:
            self._inside = self._begins(args, kwargs)
        try:
            output = self._original(*args, **kwargs)
        finally:
            inside, self._inside = self._inside, False
        if inside:
            if layer is not None:
                self._write(layer, output)
            self._write(self._output, output)
        return output

    def _begins(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """A model is called: write its inputs, if it trains and this step is due. A loss function has no parameters."""
        model = args[0]
        due = (core.get_context()[0] or 0) % self._every == 0 and step.phases.on
        if not due or not model.training or not sys.modules["torch"].is_grad_enabled():
            return False
        if next(model.parameters(), None) is None:
            return False
        step.begin()  # this may be the first event of training
        for number, tensor in enumerate(tensors((args[1:], kwargs))):
            if number == len(self._inputs):
                self._inputs.append(named(INPUT, str(number)))
            write(self._inputs[number], tensor)
        self._write_before(model)
        return True

    def _write_before(self, model: Any) -> None:
        """What the forward begins with, unless it was written already: parameters, and now and then random numbers."""
        number = core.get_context()[0] or 0
        if self._before[0] != number:
            self._before = number, []
        if id(model) in self._before[1]:
            return
        self._before[1].append(id(model))
        if self._updated is None or self._updated != number - 1:
            every = list(naming.bare(model).parameters())
            known = [self._parameters.get(one) or self._name(one, f"parameter {n}") for n, one in enumerate(every)]
            write_many([one.before for one in known], every)
        if self._random is None or number - self._random >= RANDOM_EVERY:
            self._random = number
            core.mark("state", f"{FINGERPRINT}{RANDOM}", None, {"state": randomness.packed()})


# ── one tensor ───────────────────────────────────────────────────────────────────────────────────────────────────────


def write_all(span: Any, value: Any) -> None:
    """Record the fingerprints of all tensors in a value."""
    if quick(span, value):
        return
    for tensor in tensors(value):
        write(span, tensor)


def write_many(spans: list[Any], tensors: list[Any]) -> None:
    """Record the fingerprints of tensors; None has none."""
    for span, tensor in quick_many(spans, tensors):
        _write_slowly(span, tensor)


def write(span: Any, tensor: Any) -> None:
    """Record the fingerprint of a tensor: the digest is the key, the sum the value. What has no plain memory is left out."""
    if not quick(span, tensor):
        _write_slowly(span, tensor)


def _write_slowly(span: Any, tensor: Any) -> None:
    found = measure(tensor)
    if found is not None:
        key, value = found
        core.note(span, value, key)


def measure(tensor: Any) -> tuple[int, float] | None:
    """The digest and the sum of a tensor; None: it has no plain memory."""
    torch = sys.modules["torch"]
    tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor  # a DTensor: what this rank has of it
    if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized or not _is_there(tensor):
        return None
    plain = tensor.detach()
    if plain.is_complex():
        plain = torch.view_as_real(plain.resolve_conj())
    # A copy: the storage of what NumPy has seen can never be resized again.
    bits = (plain.resolve_neg() if plain.is_neg() else plain).clone(memory_format=torch.contiguous_format).reshape(-1)
    key = _exact(torch, plain, bits) if bits.is_cpu else _sums(torch, bits)
    return key, bits.sum(dtype=torch.float64).item() if bits.numel() else 0.0


def _is_there(tensor: Any) -> bool:
    """Does the storage hold all of the tensor? The program may have freed or shrunk it."""
    end = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    needed = (tensor.storage_offset() + end) * tensor.element_size() if tensor.numel() else 0
    return bool(tensor.untyped_storage().nbytes() >= needed)


def _never(_span: Any, _tensor: Any) -> bool:
    return False


def _all(spans: list[Any], tensors: list[Any]) -> list[tuple[Any, Any]]:
    return [pair for pair in zip(spans, tensors, strict=True) if pair[1] is not None]


# The same for a plain tensor of the host, in C; False: it is not one. And for many; those that are not.
quick: Callable[[Any, Any], bool] = _never if native is None else native.write
quick_many: Callable[[list[Any], list[Any]], list[tuple[Any, Any]]] = _all if native is None else native.write_many


def _prepare() -> None:
    """Let C know torch."""
    if native is not None:
        torch = sys.modules["torch"]
        native.prepare(
            tensor=torch.Tensor, parameter=torch.nn.Parameter, exchange=private.exchange(),
            copied_late=private.copy_on_write(), digest=xxh3_64_intdigest, seed=_seed, note=core.note, mask=BITS,
        )  # fmt: skip


def _seed(tensor: Any) -> int:
    return digest.seed(str(tensor.dtype), tuple(tensor.shape))


def tensors(value: Any) -> Iterator[Any]:
    """The tensors in a value."""
    return tensors_of(value, sys.modules["torch"].Tensor)


def _exact(torch: Any, plain: Any, bits: Any) -> int:
    memory = bits.view(torch.uint8).numpy()
    return digest.of_memory(str(plain.dtype), tuple(plain.shape), memory) & BITS


def _sums(torch: Any, bits: Any) -> int:
    """Of a tensor on a device: it stays there but for one number. Not tried where this was written: there was no device."""
    whole: int = bits.view(getattr(torch, INTEGERS[bits.element_size()])).sum(dtype=torch.int64).item()
    return (whole & BITS) | FINGERPRINT_DEVICE


def _frames() -> list[Callable[..., Any]]:
    """What runs between a model and torch.compile, which would compile it too."""
    return [
        guard.__enter__,
        guard.__exit__,
        until_gone,
        tensors_of,
        *functions_of(sys.modules[__name__], randomness, naming, private, weak),
    ]


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    pass
