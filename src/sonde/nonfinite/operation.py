"""Which operation produced a non-finite value: found from the nodes of autograd's graph and the tensors they saved."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from typing import Any, NamedTuple

from sonde.hooks.torch import dlpack, private
from sonde.nonfinite import check
from sonde.store.probe import PERHAPS

MOST_NODES = 400  # of a graph, that are looked at
# Operations that make something that is not finite of finite numbers, in the forward pass and in the backward pass.
RISKY = (
    "log", "log1p", "log2", "log10", "sqrt", "rsqrt", "div", "reciprocal", "pow", "exp", "expm1", "exp2", "acos", "asin", "atanh", "acosh",
    "linalg_vector_norm", "norm", "std", "var", "cumprod", "prod", "lgamma", "tan", "logit", "softmax", "log_softmax", "logsumexp",
    "binary_cross_entropy", "linalg_inv_ex", "linalg_solve_ex", "sinh", "cosh", "mul", "mm", "addmm", "bmm",
    "checkpoint_function",
)  # fmt: skip
# Those of them whose slope has no bound where they are finite themselves.
STEEP = {"sqrt", "pow", "acos", "asin", "linalg_vector_norm", "norm", "std"}
# Those of them that can be asked again, with what they got.
UNARY = {
    "log", "log1p", "log2", "log10", "sqrt", "rsqrt", "reciprocal", "exp", "expm1", "exp2", "acos", "asin", "atanh", "acosh", "tan",
    "sinh", "cosh", "logit",
}  # fmt: skip
# Of two; a bias adds nothing to it that is not finite.
BINARY = {"mul": "mul", "div": "div", "mm": "mm", "bmm": "bmm", "addmm": "mm"}
# What nodes keep of what went into them, and which of their edges that came by.
KEPT = {"self": 0, "input": 0, "other": 1, "mat1": 1, "mat2": 2, "weight": 1, "target": 1}
Ranges = Collection[tuple[int, int]]  # numbers of nodes, the second not included
CHECKPOINT = "torch.utils.checkpoint"


class Origin(NamedTuple):
    """An operation, and what went into it, as far as it was kept."""

    op: str | None
    given: Any = None  # a tensor
    finite: bool | None = None  # what is known of that
    gave: Any = None  # what came out of it, where that was kept or could be asked again
    node: Any = None


class KnownNode(NamedTuple):
    """What a node tells of itself."""

    op: str
    given: dict[int, Any]  # tensors that went into it, by their edges
    gave: Any  # what came out of it, or None


def forward(tensor: Any, since: int, layers: Ranges = ()) -> Origin:
    """The operation that made a value in this tensor.

    Nodes with a lower number than `since`, and those in the ranges of layers that have ended, are not asked: they gave what is finite.

    Some nodes have kept what they got or gave. Below a place that was finite nobody is to be blamed; of those that are known to
    have given something bad the earliest has made it, or one below it that keeps nothing.
    """
    top = tensor.grad_fn
    known = _graph(top, since, layers)
    if top in known and _by_itself(known[top].op, top, tensor):
        return Origin(known[top].op)
    sought = check.look(tensor)
    bits = _bits(known) | {(top, tensor.output_nr): sought}
    makers = _makers(known, bits, top, sought)
    if not makers:
        return Origin(None)
    empty = next((one for one in makers if known[one].op == "mean" and _by_itself("mean", one, tensor)), None)
    best = empty or min(makers, key=lambda one: (not _worst(one, bits) & sought & check.NAN, private.node_number(one)))
    return _blamed(best, makers[best], known, sought)


def backward(root: Any, since: int, until: int) -> str | None:
    """The operation, of those with a number in this range, whose gradient it was; known by its name alone: it keeps nothing now."""
    waiting, seen = [root], {root}
    names: list[str] = []
    for node in waiting:
        if node is None or len(seen) > MOST_NODES * 10:
            break
        if _made(node, since) and private.node_number(node) < until:
            names.append(name(node))
        for following, _ in node.next_functions:
            if following is not None and following not in seen and _made(following, since):
                seen.add(following)
                waiting.append(following)
    return _choose(names)


def users(root: Any) -> dict[Any, list[Any]]:
    """The nodes of a graph, each with those that its gradient comes from; of a large graph those near its end."""
    waiting = [root]
    found: dict[Any, list[Any]] = {root: []}
    for node in waiting:  # it grows meanwhile
        for following, _ in node.next_functions:
            if following is None or not following.next_functions:
                continue
            if following not in found and len(found) < MOST_NODES * 10:
                found[following] = []
                waiting.append(following)
            if following in found:
                found[following].append(node)
    return found


def is_steep(node: Any) -> bool:
    """Can this operation make a gradient that is not finite of finite ones, though what it gave is finite?"""
    op = name(node)
    exponent = private.saved(node, "exponent") if op == "pow" else None
    return op in STEEP and not (isinstance(exponent, int | float) and exponent >= 1)


def name(node: Any) -> str:
    """The operation of a node: `LogBackward0` is of `log`."""
    word = re.sub(r"(Backward|Impl)\d*$", "", node.name().rpartition("::")[2])
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word).lower()


def _made(node: Any, since: int) -> bool:
    """Is this node of a call since then? Those that add to a parameter's gradient are the parameter's."""
    return bool(node.next_functions) and private.node_number(node) >= since


def _choose(names: list[str]) -> str | None:
    if len(set(names)) == 1:
        return names[0]
    return next((one for one in RISKY if one in names), None)


def _graph(top: Any, since: int, layers: Ranges) -> dict[Any, KnownNode]:
    """The nodes of code that a tensor was made by since then, the latest first, and what each tells."""
    found: dict[Any, KnownNode] = {}
    waiting = [top]
    for node in waiting:  # it grows meanwhile
        if node is None or node in found or len(found) > MOST_NODES or not _made(node, since):
            continue
        number = private.node_number(node)
        if any(first <= number < end for first, end in layers):
            continue
        op, given = name(node), kept(node)
        gave = _read(node, "result")
        gave = _asked_again(op, node, given) if gave is None else gave
        found[node] = KnownNode(op, given, gave)
        good = {place for place, one in given.items() if not check.look(one)}
        if gave is None or check.look(gave):
            waiting += [one for place, (one, _) in enumerate(node.next_functions) if place not in good]
    return dict(sorted(found.items(), key=lambda one: -private.node_number(one[0])))


def kept(node: Any) -> dict[int, Any]:
    """What went into a node, as far as it has kept it and still has it."""
    last = len(node.next_functions) - 1
    values = ((min(place, last), _read(node, word)) for word, place in KEPT.items())
    return {place: one for place, one in values if one is not None}


def _bits(known: dict[Any, KnownNode]) -> dict[tuple[Any, int], int]:
    """What is known of what nodes gave, each with the number of its output: by themselves, or by those that got it."""
    found = {}
    for node, one in known.items():
        if one.gave is not None:
            found[node, 0] = check.look(one.gave)
        found.update({node.next_functions[place]: check.look(value) for place, value in one.given.items()})
    return found


def _worst(node: Any, bits: dict[tuple[Any, int], int]) -> int:
    return max((value for (one, _), value in bits.items() if one is node), default=0)


def _makers(known: dict[Any, KnownNode], bits: dict[Any, int], top: Any, sought: int) -> dict[Any, list[Any]]:
    """The earliest nodes that are known to have given something bad; each with those below it of which nothing is known.

    An infinity that nobody computes is that of a mask: who makes NaN of it is to be blamed.
    """
    makers: dict[Any, set[Any]] = {}  # at a node or below it
    silent: dict[Any, set[Any]] = {}
    for node in reversed(known):
        below = [one for one, number in node.next_functions if one in known and bits.get((one, number)) != 0]
        makers[node] = set().union(*(makers[one] for one in below))
        silent[node] = set().union(*(silent[one] for one in below))
        worst = _worst(node, bits) or _from_elsewhere(node, known)
        mask = worst == check.INF and sought != check.INF and node is not top and _is_calm(node, known[node])
        if worst and not mask and not makers[node]:
            makers[node] = {node}
        elif not worst:
            silent[node].add(node)
    return {one: [other for other in known if other in silent[one]] for one in makers.get(top, ())}


def _from_elsewhere(node: Any, known: dict[Any, KnownNode]) -> int:
    """What is wrong with that which came into a node from outside of this graph."""
    outside = (one for place, one in known[node].given.items() if node.next_functions[place][0] not in known)
    return max((check.look(one) for one in outside), default=0)


def _is_calm(node: Any, known: KnownNode) -> bool:
    """Does this operation make nothing of finite numbers that is not finite? Products and quotients by what they got."""
    if isinstance(node, sys.modules["torch"].autograd.function.BackwardCFunction):
        return False
    factor = known.given.get(1, known.given.get(0) if known.op == "mul" else None)
    if known.op in ("mul", "div") and factor is not None:
        return check.look(factor) == 0 and not (known.op == "div" and _has_zero(factor))
    return known.op not in RISKY


def _has_zero(tensor: Any) -> bool:
    return bool((tensor.detach() == 0).any())


def _blamed(maker: Any, silent: list[Any], known: dict[Any, KnownNode], sought: int) -> Origin:
    """One that gave something bad, or one of those below it that show nothing."""
    wild = [one for one in silent if not _is_calm(one, known[one])]
    zero = next((one for one in wild if known[one].op == "div" and 1 in known[one].given), None)
    if zero is not None:
        return Origin(known[zero].op)
    if silent and _is_calm(maker, known[maker]):
        return Origin(_guessed([known[one].op for one in wild], [known[one].op for one in (maker, *silent)], sought))
    op, given, gave = known[maker]
    wrong = next((one for one in given.values() if check.look(one)), None)
    if wrong is not None:
        return Origin(op, wrong, False, gave, maker)
    sure = not any(one in known for one, _ in maker.next_functions) or len(given) == len(maker.next_functions)
    if sure or not silent:
        first = next(iter(given.values()), None)
        return Origin(op, first, None if first is None else True, gave, maker)
    return Origin(PERHAPS + op if wild else op, gave=gave, node=maker)


def _guessed(wild: list[str], names: list[str], sought: int) -> str | None:
    """The operation that is to be blamed, by names alone."""
    if sought == check.INF and not wild and "masked_fill" in names:
        return "masked_fill"
    if not wild:
        return names[0] if len(set(names)) == 1 else None
    chosen = _choose(wild)
    return chosen if chosen is None or len(wild) == 1 else PERHAPS + chosen


def saved(node: Any, name: str) -> Any:
    """What a node has kept; None if it has it no more, or a checkpoint would have to compute it again."""
    try:
        raw = private.raw_saved(node, name)
        hooks = (getattr(one, "unpack_hook", None) for one in (raw if isinstance(raw, tuple) else (raw,)))
        if any(getattr(one, "__module__", None) == CHECKPOINT for one in hooks):
            return None
        return private.saved(node, name)
    except RuntimeError:  # the pass has gone through it
        return None


def _read(node: Any, name: str) -> Any:
    value = saved(node, name)
    torch = sys.modules["torch"]
    plain = type(value) in (torch.Tensor, torch.nn.Parameter)  # others decide for themselves what their values are
    return value if plain and not private.is_wrapped(value) and dlpack.is_there(value) else None


def _by_itself(op: str, node: Any, tensor: Any) -> bool:
    """Has this operation made what it was not given? The mean of nothing; or all of it is what was filled in."""
    if op == "mean":
        return bool(private.saved(node, "self_sym_numel", 1) == 0)
    mask = _read(node, "mask") if op == "masked_fill" and node is tensor.grad_fn else None
    return mask is not None and not bool((check.bad(tensor) & ~mask.detach().cpu()).any())


def _asked_again(op: str, node: Any, given: dict[int, Any]) -> Any:
    """What comes out of a simple operation, of what it got; None if it is not one of those, or not all is there."""
    torch = sys.modules["torch"]
    values = [given[place].detach() for place in sorted(given)]
    try:
        with torch.no_grad():
            if op in UNARY and len(values) == 1:
                return getattr(torch, op)(*values)
            exponent = private.saved(node, "exponent") if op == "pow" and len(values) == 1 else None
            if isinstance(exponent, int | float):
                return torch.pow(values[0], exponent)
            if op in BINARY and len(values) == 2:
                return getattr(torch, BINARY[op])(*values)
    except RuntimeError:  # memory, or a dtype that it takes only in a mode of the program
        pass
    return None
