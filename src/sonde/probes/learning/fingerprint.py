"""Fingerprints of a training, every N steps: inputs, the output of each leaf layer, gradients and parameters.

A fingerprint is a digest of all bits (on a device: sums of them as integers) and the sum as a float. Two runs that compute the same
have the same ones; where they part, the first that differs names the layer and the direction. Between two such steps nothing is
registered with torch. Of a model that torch.compile took, layers are not seen: inputs, output, gradients and parameters are.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sonde.events import core
from sonde.guard import guard
from sonde.hooks.torch.module import module_call
from sonde.hooks.torch.optimizer import optimizer_step
from sonde.probes import step
from sonde.probes.layers import names as naming
from sonde.probes.layers.backward import tensors_of
from sonde.probes.learning.rate import at_step
from sonde.probes.off import switch_off
from sonde.store.probe import FINGERPRINT, FINGERPRINT_DEVICE
from sonde.values import digest
from sonde.weak import WeakTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sonde.config import Settings

DOING = "taking fingerprints"
INPUT, FORWARD, BACKWARD, UPDATE = "input", "forward", "backward", "update"
BITS = FINGERPRINT_DEVICE - 1  # of a digest
INTEGERS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}


def install(settings: Settings) -> Callable[[], None]:
    """Take fingerprints every so many steps, as the setting says; 0: never."""
    if not settings.fingerprint:
        return lambda: None
    return Fingerprints(settings.fingerprint).start()


class Fingerprints:
    """Those of this process."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._leave: list[Callable[[], None]] = []
        self._armed: list[Callable[[], None]] = []  # what ends the subscriptions
        self._parameters: WeakTable[str] = WeakTable()  # their names

    def start(self) -> Callable[[], None]:
        """Begin; the returned function ends it."""
        self._arm()
        self._leave = [self._disarm, at_step(self._stepped)]
        return self.end

    def _arm(self) -> None:
        if not self._armed:
            self._armed = [module_call.subscribe(_Calls(self)), optimizer_step.subscribe(_Steps(self))]

    def _disarm(self) -> None:
        while self._armed:
            self._armed.pop()()

    def _stepped(self) -> None:
        """An optimizer has stepped: subscribe only if this step, or the next one, is due. Other steps take their quick way."""
        number = core.get_context()[0] or 0
        if number % self._every == 0 or (number + 1) % self._every == 0:
            self._arm()
        else:
            self._disarm()

    def end(self) -> None:
        """Take no more."""
        while self._leave:
            self._leave.pop()()

    def give_up(self) -> None:
        """A failure switches this probe off, and a mark in the run says so."""
        self.end()
        switch_off("fingerprint", DOING)

    def due(self) -> bool:
        """Is this step one of those?"""
        return (core.get_context()[0] or 0) % self._every == 0 and step.phases.on

    def call_begins(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], None] | None:
        """The model is called: note its inputs, and watch its layers; returns what ends that."""
        model = args[0]
        # A loss function has no parameters, and its inputs are outputs of the model.
        if (
            not model.training
            or not sys.modules["torch"].is_grad_enabled()
            or not any(True for _ in model.parameters())
        ):
            return None
        found = list(naming.layers(model))
        step.begin()  # this may be the first event of training
        for name, parameter in naming.bare(model).named_parameters():
            self._parameters[parameter] = name
        for number, tensor in enumerate(tensors((args[1:], kwargs))):
            write(INPUT, str(number), tensor)
        if any(one.compiled for one in found):
            return _nothing
        names = {id(one.module): one.name or naming.kind(model) for one in found if not _children(one.module)}

        def called(module: Any, _inputs: Any, output: Any) -> None:
            name = names.get(id(module))
            if name is not None:
                with guard(DOING, then=self.give_up):
                    for tensor in tensors(output):
                        write(FORWARD, name, tensor)

        hook = sys.modules["torch.nn.modules.module"].register_module_forward_hook(called)
        removed: Callable[[], None] = hook.remove
        return removed

    def parameters(self, optimizer: Any) -> list[tuple[str, Any]]:
        """The parameters of an optimizer, with their names."""
        every = (one for group in optimizer.param_groups for one in group["params"])
        return [(self._parameters.get(one) or f"parameter {number}", one) for number, one in enumerate(every)]


class _Calls:
    """Sees outermost calls of modules."""

    def __init__(self, prints: Fingerprints) -> None:
        self._prints = prints

    def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], None] | None:
        """A model, or a loss, is called."""
        if not self._prints.due():
            return None
        with guard(DOING, then=self._prints.give_up):
            return self._prints.call_begins(args, kwargs)
        return None

    def after(self, removed: Callable[[], None] | None, result: Any, error: BaseException | None) -> None:
        """It has ended."""
        if removed is None:
            return
        removed()
        if error is None:
            with guard(DOING, then=self._prints.give_up):
                for tensor in tensors(result):
                    write(FORWARD, "output", tensor)


class _Steps:
    """Sees steps of optimizers."""

    def __init__(self, prints: Fingerprints) -> None:
        self._prints = prints

    def before(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
        """One begins: its gradients are there."""
        if not self._prints.due():
            return None
        optimizer = args[0]
        with guard(DOING, then=self._prints.give_up):
            for name, parameter in self._prints.parameters(optimizer):
                if parameter.grad is not None:
                    write(BACKWARD, name, parameter.grad)
        return optimizer

    def after(self, optimizer: Any, _result: Any, error: BaseException | None) -> None:
        """It has ended: its parameters are new."""
        if optimizer is None or error is not None:
            return
        with guard(DOING, then=self._prints.give_up):
            for name, parameter in self._prints.parameters(optimizer):
                write(UPDATE, name, parameter)


def write(direction: str, name: str, tensor: Any) -> None:
    """Record the fingerprint of a tensor: the digest is the key, the sum the value. What has no plain memory is left out."""
    torch = sys.modules["torch"]
    if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized:
        return
    plain = tensor.detach()
    if plain.is_complex():
        plain = torch.view_as_real(plain.resolve_conj())
    bits = (plain.resolve_neg() if plain.is_neg() else plain).contiguous().reshape(-1)
    key = _exact(torch, plain, bits) if bits.is_cpu else _sums(torch, bits)
    value = bits.sum(dtype=torch.float64).item() if bits.numel() else 0.0
    core.counter(name, value, f"{FINGERPRINT}{direction}", key)


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


def _children(module: Any) -> bool:
    return any(True for _ in module.children())


def _nothing() -> None:
    pass
