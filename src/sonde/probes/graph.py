"""When a backward pass goes through a layer: told by hooks on the nodes of autograd's graph that the layer's call has made.

A call of a layer makes nodes with numbers in a row, and a backward pass goes through them from the highest number to the
lowest. So the layer's part begins where the first node of its result is entered, and ends where the node with the lowest
number is left; that holds for a first layer too, whose input needs no gradient. Where that node is not part of the pass, the
next layer or the end of the pass ends it. The hooks live and die with the graph: nothing stays on modules or tensors.

A result that is a view, as that of a Linear with three dimensions, gets another node if it is changed in place: the one that it
had is not part of the pass then. What stays is the node behind it, that of the tensor it is a view of.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.events import core
from sonde.hooks.torch.engine import graph_task

native: Any = None
try:
    from sonde.probes import _passage as native
except ImportError:  # not built: Python does the same, with some frames for each layer
    pass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sonde.guard import guard

MOST_NODES = 400  # of one call, that are searched for the lowest; more: the next layer ends it
MOST_TENSORS = 64  # of one result
DEEPEST = 4  # containers in each other, in a result


class Route(NamedTuple):
    """How to come from the nodes of a result to the lowest one: which of them, and at each node which of the next ones."""

    start: int
    hops: tuple[int, ...]
    offset: int  # of its number from that of the first node of the call


class Followed:
    """What is needed here of a layer: its span of backward passes, and the way to its lowest node."""

    __slots__ = ("backward", "gradients", "route")

    def __init__(self, backward: core.Span | None, gradients: bool) -> None:
        self.backward = backward  # None: only its forward is recorded
        self.gradients = gradients  # they are measured
        self.route: Route | None = None


class Passage:
    """One call of a layer, and what the backward pass does there."""

    __slots__ = ("above", "cancelled", "first", "layer", "loose", "open", "parted", "size")

    def __init__(self, layer: Any, first: int) -> None:
        self.layer = layer  # a Followed
        self.first = first  # nodes of this call have this number, or a higher one
        self.above: Passage | None = None  # the call of a layer that this one was made in
        self.parted = False  # layers were called in it
        self.cancelled = False  # so it turned out to be no layer
        self.loose = False  # an operation in place may take the node of its result out of the graph
        self.open = False  # a backward pass is in it
        self.size: int | None = None  # bytes of the gradients that came in

    def enters(self, gradients: tuple[Any, ...]) -> None:
        """The pass comes to a node of the result."""
        with _Graph.guard:
            if not self.open:
                opened = _thread.opened
                if not opened or _Graph.task() != _thread.task:
                    _begin_pass(opened)
                self._enter(opened)
            if self.layer.gradients:
                for gradient in gradients:
                    if gradient is not None:
                        size = nbytes(gradient)
                        self.size = size if self.size is None else self.size + (size or 0)

    def begins(self, _gradients: tuple[Any, ...]) -> None:
        """The pass comes to a node behind the result: what comes in there was counted, or is not what came to the result."""
        self.enters(())

    def leaves(self, *_: Any) -> None:
        """The pass has left the lowest node."""
        with _Graph.guard:
            opened = _thread.opened
            if self.open and self in opened:
                while opened and (self.open or opened[-1].first == self.first):
                    _close(opened.pop(), None)

    def _enter(self, opened: list[Passage]) -> None:
        above = self.above
        while above is not None and above.cancelled:
            above = above.above
        while opened and not (above is not None and opened[-1].holds(above)):
            _close(opened.pop(), None)
        if above is not None and not above.open:
            above._enter(opened)
        core.enter(self.layer.backward)
        self.open = True
        opened.append(self)

    def holds(self, other: Passage | None) -> bool:
        """Was the other call made in this one, or is it the same?"""
        while other is not None and other is not self:
            other = other.above
        return other is not None


class _Thread(threading.local):
    def __init__(self) -> None:
        self.opened: list[Passage] = []  # each lies in the one before
        self.task = -1  # the backward pass that they are of


class _Graph:
    """What is needed of torch, once it is there; and the guard of whoever uses this."""

    guard: guard[None]
    task: Callable[[], int]
    queue: Callable[[Callable[[], None]], None]


_thread = _Thread()


def prepare(guarded: guard[None]) -> None:
    """Get ready: torch is there. All that happens in hooks is under this guard."""
    _Graph.guard = guarded
    _Graph.task = staticmethod(graph_task())
    _Graph.queue = staticmethod(sys.modules["torch"].autograd.Variable._execution_engine.queue_callback)


def hook(passage: Passage, tensors: tuple[Any, ...], given: Any, ends: bool) -> bool:
    """Follow backward passes through a call that gave these tensors; returns whether they come through it.

    `given`: the first argument of the call. `ends`: the end is wanted too; else the next layer that is entered ends it.
    """
    nodes: list[Any] = []
    for tensor in tensors:
        node = tensor.grad_fn  # asked for in any case: that of a view that was changed is made now, as one of this call
        if _is_ours(passage, node) and not _hook_behind(passage, tensor, given, nodes):
            _hook_node(node, passage.enters, nodes)
    lowest = _lowest(passage.layer, nodes, passage.first, given) if ends and nodes else None
    if lowest is not None:
        lowest.register_hook(passage.leaves)
    return bool(nodes)


def _is_ours(passage: Passage, node: Any) -> bool:
    return node is not None and node._sequence_nr() >= passage.first


def _hook_node(node: Any, called: Callable[..., None], nodes: list[Any]) -> None:
    if node not in nodes:
        nodes.append(node)
        node.register_prehook(called)


def _hook_behind(passage: Passage, tensor: Any, given: Any, nodes: list[Any]) -> bool:
    """If the result is a view, hook the node of what it is a view of; returns whether that is all that needs a hook.

    A view of only a part does work of its own on the way back, and so does one that the layer has changed in place.
    """
    base = tensor._base
    if base is None:
        return False
    node = base.grad_fn
    if not _is_ours(passage, node):  # a view of what came in
        passage.loose = True
        return False
    whole = tensor is not given and nbytes(base) == nbytes(tensor)
    _hook_node(node, passage.enters if whole else passage.begins, nodes)
    return whole


def finish(error: BaseException | None) -> None:
    """A backward pass of this thread has ended."""
    if native is not None:
        native.finish(None if error is None else type(error))
    opened = _thread.opened
    while opened:
        _close(opened.pop(), error)


def _begin_pass(opened: list[Passage]) -> None:
    """A new pass begins. What an earlier one left open ended at an unknown time: it is dropped."""
    while opened:
        left = opened.pop()
        left.open, left.size = False, None
        core.cancel(left.layer.backward)
    _thread.task = _Graph.task()
    _Graph.queue(_ended)


def _ended() -> None:
    with _Graph.guard:
        finish(None)


def _close(passage: Passage, error: BaseException | None) -> None:
    core.leave(passage.layer.backward, passage.size, None if error is None else type(error))
    passage.open, passage.size = False, None


# ── the lowest node ──────────────────────────────────────────────────────────────────────────────────────────────────


def _lowest(layer: Followed, nodes: list[Any], first: int, given: Any) -> Any:
    """The node with the lowest number; None if there are too many to tell. Found by the way of the last call, or a search."""
    route = layer.route
    if route is not None and route.start < len(nodes):
        node = _at_end(nodes[route.start], route.hops)
        if node is not None and node._sequence_nr() == first + route.offset:
            return node
    found = search(nodes, first, given)
    layer.route = found and Route(*found[1:])
    return found and found[0]


def _at_end(node: Any, hops: tuple[int, ...]) -> Any:
    for hop in hops:
        following = node.next_functions
        node = following[hop][0] if hop < len(following) else None
        if node is None:
            return None
    return node


def search(nodes: list[Any], first: int, given: Any) -> tuple[Any, int, tuple[int, ...], int] | None:
    """The node with the lowest number of those that the call has made, and its route; None: there are too many to tell.

    That of the input is not one of them. It may have such a number: a view that was changed in place gets its node when it
    is used.
    """
    waiting: list[tuple[Any, int, tuple[int, ...]]] = [(node, start, ()) for start, node in enumerate(nodes)]
    seen = {*nodes, given.grad_fn if isinstance(given, sys.modules["torch"].Tensor) else None}
    best: tuple[Any, int, tuple[int, ...], int] = (nodes[0], 0, (), nodes[0]._sequence_nr() - first)
    for node, start, hops in waiting:  # it grows meanwhile
        offset = node._sequence_nr() - first
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
    return node._sequence_nr() >= first and bool(node.next_functions)


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
FRAMES = (
    Passage.__init__, Passage.enters, Passage.begins, Passage.leaves, Passage._enter, Passage.holds, hook, _is_ours, _hook_node,
    _hook_behind, finish, _begin_pass, _ended, _close, _lowest, _at_end, search, _made_since, tensors_of, nbytes,
)  # fmt: skip
