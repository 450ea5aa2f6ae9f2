"""Times of layers in a backward pass, from hooks on the autograd nodes that the layer's call created.

A call of a layer makes nodes with numbers in a row, and a backward pass goes through them from the highest number to the
lowest. So the layer's part begins where the first node of its result is entered, and ends where the node with the lowest
number is left; that holds for a first layer too, whose input needs no gradient. Where that node is not part of the pass, the
next layer or the end of the pass ends it. The hooks live and die with the graph: nothing stays on modules or tensors.

A result that is a view, as that of a Linear with three dimensions, gets another node if it is changed in place: the one that it
had is not part of the pass then. What stays is the node behind it, that of the tensor it is a view of.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from sonde.hooks.torch import private
from sonde.native import layers

native: Any = layers  # None: C was not built
MOST_NODES = 400  # of one call, that are searched for the lowest; more: the next layer ends it
MOST_TENSORS = 64  # of one result
DEEPEST = 4  # containers in each other, in a result


def search(nodes: list[Any], first: int, given: Any) -> tuple[Any, int, tuple[int, ...], int] | None:
    """The node with the lowest number of those that the call has made, and where it is; None: there are too many.

    That of the input is not one of them. It may have such a number: a view that was changed in place gets its node when it
    is used.
    """
    waiting: list[tuple[Any, int, tuple[int, ...]]] = [(node, start, ()) for start, node in enumerate(nodes)]
    seen = {*nodes, given.grad_fn if isinstance(given, sys.modules["torch"].Tensor) else None}
    best: tuple[Any, int, tuple[int, ...], int] = (nodes[0], 0, (), private.node_number(nodes[0]) - first)
    for node, start, hops in waiting:  # it grows meanwhile
        offset = private.node_number(node) - first
        if offset < best[3]:
            best = (node, start, hops, offset)
        for hop, (following, _) in enumerate(node.next_functions):
            if following is not None and following not in seen and _made_since(following, first):
                seen.add(following)
                waiting.append((following, start, (*hops, hop)))
        if len(waiting) > MOST_NODES:
            return None
    return best


def _made_since(node: Any, first: int) -> bool:
    """Is this a node of the call? Those that add to a parameter's gradient are the parameter's, and have no node behind them."""
    return private.node_number(node) >= first and bool(node.next_functions)


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def tensors_of(value: Any, kind: type, deeper: int = DEEPEST) -> Iterator[Any]:
    """The tensors in a result: alone, or in tuples, lists, mappings and dataclasses in each other."""
    if isinstance(value, kind):
        yield value
    elif deeper and isinstance(value, Mapping):
        for one in list(value.values())[:MOST_TENSORS]:
            yield from tensors_of(one, kind, deeper - 1)
    elif deeper and isinstance(value, tuple | list):
        for one in value[:MOST_TENSORS]:
            yield from tensors_of(one, kind, deeper - 1)
    elif deeper and hasattr(type(value), "__dataclass_fields__"):
        for name in list(value.__dataclass_fields__)[:MOST_TENSORS]:
            yield from tensors_of(getattr(value, name, None), kind, deeper - 1)


def nbytes(tensor: Any) -> int | None:
    """The bytes of a tensor; None for those that cannot say: nested ones, sparse ones, parameters without a shape yet."""
    try:
        return int(tensor.nbytes)
    except (RuntimeError, ValueError, TypeError, NotImplementedError):
        return None


# All that runs between the modules of a program.
FRAMES = (search, _made_since, tensors_of, nbytes)
