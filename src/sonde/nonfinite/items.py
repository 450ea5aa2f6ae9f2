"""Which items of a batch the rows of a tensor are of: a model may have put them into another order.

That is shown by the nodes of autograd's graph that choose rows, and by what went into its first operations, which is compared with the
batch. Where it cannot be determined nobody is named.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

from sonde.hooks.torch import dlpack, private
from sonde.nonfinite import batches, operation

MOST_NODES = 20_000
MOST_VALUES = 1 << 24  # of a tensor of the batch that is compared
NEGATIVE = 1 << 63  # nodes give dimensions as numbers without a sign
CHOOSING = {"index", "index_select", "gather", "sort", "topk", "flip", "roll"}
WRITING = {"index_put", "index_copy", "index_add", "scatter", "scatter_add", "scatter_reduce"}
Order = tuple[int, ...]  # the row of an earlier tensor, for each row
UNLIKE: Order = ()  # tensors that have nothing to do with each other


class Carrier(NamedTuple):
    """A tensor with a row for each item, and the node that made it; or one that was used after it."""

    tensor: Any
    node: Any = None
    exact: bool = True


def places(carrier: Carrier, bad: list[int], size: int, batch: Iterable[Any]) -> list[int] | None:
    """The places in the batch of some rows; None if they cannot be determined. `size`: how many items there are."""
    if carrier.node is None:
        return bad
    known = _nodes(carrier.node)
    moves = {one: move for one in known if (move := _move(one, size)) != tuple(range(size))}
    if not carrier.exact:
        return None if moves else bad
    starts = _starts(known)
    order = _order(carrier.node, known, moves, starts, size)
    return None if order is None else _compared(sorted(order[one] for one in bad), starts, size, batch)


def _nodes(top: Any) -> list[Any]:
    """The nodes of a graph, each before those below it."""
    found, waiting = {top}, [top]
    for node in waiting:  # it grows meanwhile
        following = {one for one, _ in node.next_functions if one is not None and one.next_functions}
        waiting += following - found if len(found) < MOST_NODES else ()
        found |= following
    return sorted(found, key=lambda one: -private.node_number(one))


def _order(top: Any, known: list[Any], moves: dict[Any, Order | None], starts: list[Any], size: int) -> Order | None:
    """The rows of the first tensors that the rows of the last one are of, if they are the same by all ways."""
    if not moves:
        return tuple(range(size))
    orders: dict[Any, set[Order | None]] = {one: set() for one in known}
    orders[top].add(tuple(range(size)))
    for node in known:
        move = moves.get(node, tuple(range(size)))
        after = {None if one is None or move is None else tuple(move[row] for row in one) for one in orders[node]}
        for following, _ in node.next_functions:
            if following in orders:
                orders[following] |= after
        orders[node] = after
    agreed = set().union(*(orders[one] for one in starts or known[-1:]))
    return agreed.pop() if len(agreed) == 1 else None


def _starts(known: list[Any]) -> list[Any]:
    """The nodes that something without a graph comes into, and below which is no other: what others got beside is not the data."""
    above: set[Any] = set()
    found = []
    for node in reversed(known):
        takes = operation.name(node) == "embedding" or any(one is None for one, _ in node.next_functions)
        if any(one in above for one, _ in node.next_functions):
            above.add(node)
        elif takes:
            above.add(node)
            found.append(node)
    return found


# ── nodes ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _move(node: Any, size: int) -> Order | None:
    """For each row that a node gives the row that it took; None if that cannot be determined."""
    same = tuple(range(size))
    op = operation.name(node)
    if op in WRITING:
        values = node.next_functions[-1][0]
        return same if values is None or not _is_first(node) else _chosen(node, size, write=True)
    if op not in CHOOSING or not _is_first(node):
        return same
    shape = private.result_shape(node)
    if op in ("flip", "roll"):
        return same if not shape or shape[0] != size else same[::-1] if op == "flip" else None
    before = private.saved(node, "self_sym_sizes", shape)
    return same if not before or before[0] != size else _chosen(node, size, write=False)


def _is_first(node: Any) -> bool:
    """Does it choose along the first dimension?"""
    if private.can_save(node, "indices") and not private.can_save(node, "dim"):
        indices = operation.saved(node, "indices")
        return indices is None or indices[0] is not None
    dims = private.saved(node, "dims") or (private.saved(node, "dim", 0),)
    rank = len(private.result_shape(node))
    return 0 in (one if one < NEGATIVE else one - 2 * NEGATIVE + rank for one in dims)


def _chosen(node: Any, size: int, *, write: bool) -> Order | None:
    index = operation.saved(node, "index")
    index = operation.saved(node, "indices") if index is None else index
    index = index[0] if isinstance(index, tuple) else index
    if index is None or not index.ndim or dlpack.is_gone(index):
        return None
    index = index.detach().cpu()
    if index.dtype is sys.modules["torch"].bool:
        index = index.nonzero()[:, 0]
    rows = index.reshape(len(index), -1) if index.numel() else index
    if len(index) != size or bool((rows != rows[:, :1]).any()):
        return None
    found = tuple(int(one) % size for one in rows[:, 0].tolist())
    return None if write and found != tuple(range(size)) else found


# ── the batch ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _compared(rows: list[int], starts: list[Any], size: int, batch: Iterable[Any]) -> list[int] | None:
    """The places of these rows in the batch: where one of its tensors came in with its rows in another order, by their values."""
    given = [one for node in starts for one in _data(node)]
    pairs = [(one, tensor) for tensor in batch for one in given if _is_like(one, tensor, size)]
    agreed = {_matched(rows, *pair, size) for pair in pairs} - {UNLIKE}
    if not agreed:
        return rows
    found = agreed.pop()
    return None if agreed or found is None else list(found)


def _data(node: Any) -> list[Any]:
    if operation.name(node) == "embedding":
        return [one for one in (operation.saved(node, "indices"),) if one is not None]
    return [one for place, one in operation.kept(node).items() if node.next_functions[place][0] is None]


def _is_like(given: Any, tensor: Any, size: int) -> bool:
    plain = all(
        batches.address(one) and dlpack.is_there(one) and not one.is_complex() and not one.is_quantized
        for one in (given, tensor)
    )
    if not plain or given.dtype is not tensor.dtype or not tensor.ndim or len(tensor) != size:
        return False
    return bool(size < given.numel() == tensor.numel() <= MOST_VALUES)


def _matched(rows: list[int], given: Any, tensor: Any, size: int) -> Order | None:
    """The places of rows of one tensor in another one that has the same rows; None if they cannot be determined."""
    came, left = (_bytes(one, size) for one in (given, tensor))
    if came == left:
        return tuple(rows)
    if not came or len(set(came)) == 1 or not set(came) <= set(left):
        return UNLIKE
    found = [[place for place, other in enumerate(left) if other == came[row]] for row in rows]
    if sorted(came) != sorted(left) or any(len(one) > 1 for one in found):
        return None
    return tuple(sorted(one[0] for one in found))


def _bytes(tensor: Any, size: int) -> list[bytes]:
    torch = sys.modules["torch"]
    plain = tensor.detach().cpu().reshape(size, -1).contiguous().view(torch.uint8)
    return [one.tobytes() for one in dlpack.array_of(plain)]
