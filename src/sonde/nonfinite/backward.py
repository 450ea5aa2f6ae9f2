"""What produced a non-finite gradient: found after the pass, from where gradients were finite and where not.

A backward pass goes through autograd's nodes from the highest number to the lowest. Each layer's call made the nodes of a range;
what comes to its end is seen by a hook, or shown by the gradients of its parameters. So it was made between the highest
place that is known to be bad and the lowest one above it that is known to be good.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sonde.hooks.torch import private
from sonde.nonfinite import operation
from sonde.nonfinite.certificate import Location

LAST = 1 << 62
# Layers of torch without parameters whose gradient is, at most, about what came to them: they make nothing of finite numbers.
CALM = frozenset({
    "Identity", "Flatten", "Unflatten", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout",
    "ReLU", "ReLU6", "Sigmoid", "Tanh", "Hardtanh", "Hardsigmoid", "Hardswish", "GELU", "SiLU", "Mish", "Softsign", "LogSigmoid",
    "MaxPool1d", "MaxPool2d", "MaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "AdaptiveAvgPool1d", "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
    "ConstantPad1d", "ConstantPad2d", "ConstantPad3d", "PixelShuffle", "PixelUnshuffle", "ChannelShuffle", "Softmax", "LogSoftmax",
})  # fmt: skip
# The same of single operations: a gradient goes through them as it is, or about so.
CALM_NODES = frozenset(
    f"{name}Backward0" for name in ("Add", "Sub", "Relu", "Gelu", "Silu", "View", "Transpose", "Permute")
)
CONTAINERS = frozenset({"Sequential", "ModuleList", "ModuleDict"})


def is_calm(module: Any) -> bool:
    """Is this a layer of torch that makes nothing in the backward pass that is not finite?"""
    name = type(module).__name__
    return name in CALM or (name == "LeakyReLU" and abs(module.negative_slope) <= 1)


def is_asked(module: Any) -> bool:
    """Is this a layer of torch whose gradients are to be seen? Those of parameters tell of all others."""
    if type(module).__name__ in CONTAINERS or is_calm(module):
        return False
    return next(module.parameters(), None) is None


def reaches(loss: Any, since: int) -> bool:
    """Does a backward pass from here go through something that autograd made before it had counted so far?"""
    root = getattr(loss, "grad_fn", None)
    return root is not None and any(private.node_number(node) < since for node in operation.users(root))


class SeenGradient(NamedTuple):
    """A gradient that was seen at a place: before the node of this number the pass had reached it."""

    number: int
    bad: bool


class NodeRange(NamedTuple):
    """The nodes that the last call of a layer has made."""

    layer: Any
    first: int
    end: int


def locate(seen: Sequence[SeenGradient], ranges: Sequence[NodeRange], root: Any) -> Location | None:
    """Where it was made; None if that cannot be determined."""
    bad = max((one.number for one in seen if one.bad), default=None)
    if bad is None:
        return None
    good = min((one.number for one in seen if not one.bad and one.number > bad), default=LAST)
    inside = sorted((one for one in ranges if bad <= one.first and one.end <= good), key=lambda one: one.first)
    inside = [one for one in inside if one.end > one.first]
    after = max((one for one in ranges if one.end <= bad), key=lambda one: one.end, default=None)
    before = min((one for one in ranges if one.first >= good), key=lambda one: one.first, default=None)
    own = [one for one in inside if one.layer.own]
    gap = None if root is None else _gap(root, inside, bad, good)
    if gap is not None and not own:
        below = [one for one in inside if one.end <= gap[1]]
        above = [one for one in inside if one.first >= gap[1]]
        near = below[-1] if below else after
        next_ = above[0] if above else before
        return Location("backward", True, after=_name(near), before=_name(next_), op=gap[0])
    wild = own or [one for one in inside if not one.layer.calm] or inside
    chosen = wild[-1] if wild else None
    if chosen is None:
        return Location("backward", True, after=_name(after), before=_name(before))
    finite = [one for one in ranges if SeenGradient(one.end, False) in seen]  # the gradients of their parameters
    past = _past(root, chosen, finite, ranges) if root is not None and chosen in finite and not own else None
    if past is not None:
        near = max((one for one in ranges if one.end <= past[1]), key=lambda one: one.end, default=None)
        next_ = min((one for one in ranges if one.first > past[1]), key=lambda one: one.first, default=None)
        return Location("backward", True, after=_name(near), before=_name(next_), op=past[0])
    op = operation.backward(root, chosen.first, chosen.end) if chosen.layer.own and root is not None else None
    return Location("backward", True, chosen.layer.name, chosen.layer.type, op=op)


def _gap(root: Any, inside: list[NodeRange], bad: int, good: int) -> tuple[str, int] | None:
    """The operation of the program's own code between the layers of this range that is to be blamed, and where it was."""
    edges = [bad, *(edge for one in inside for edge in (one.first, one.end)), good]
    for since, until in sorted(zip(edges[::2], edges[1::2], strict=True), reverse=True):
        op = operation.backward(root, since, until) if until > since else None
        if op is not None and (op in operation.RISKY or not inside):
            return op, since
    return None


def _past(root: Any, chosen: NodeRange, finite: list[NodeRange], ranges: Sequence[NodeRange]) -> tuple[str, int] | None:
    """The operation to be blamed of code that what goes into a layer went into as well, past it; and its number.

    The gradient of such a tensor is the sum of those of all ways. Ways through layers whose gradients were finite are good.
    """
    users = operation.users(root)
    inside = [node for node in users if chosen.first <= private.node_number(node) < chosen.end]
    waiting = [one for node in inside for one, _ in node.next_functions if one is not None and one not in inside]
    seen = set(waiting)
    found: list[tuple[str, int]] = []
    for node in waiting:  # it grows meanwhile
        for user in users.get(node, ()):
            number = private.node_number(user)
            if user in seen or any(one.first <= number < one.end for one in finite):
                continue
            seen.add(user)
            waiting.append(user)
            if operation.is_steep(user) and not any(one.first <= number < one.end for one in ranges):
                found.append((operation.name(user), number))
    return min(found, key=lambda one: operation.RISKY.index(one[0]), default=None)


def _name(range_: NodeRange | None) -> str | None:
    return None if range_ is None else str(range_.layer.name)
