"""Which operation made a value that is not finite: told by the nodes of autograd's graph, and by what they have kept."""

from __future__ import annotations

import re
import sys
from typing import Any, NamedTuple

from sonde.flow import finite

MOST_NODES = 400  # of a graph, that are looked at
# Operations that make something that is not finite of finite numbers, in the forward pass and in the backward pass.
RISKY = (
    "log", "log1p", "log2", "log10", "sqrt", "rsqrt", "div", "reciprocal", "pow", "exp", "expm1", "exp2", "acos", "asin", "atanh", "acosh",
    "linalg_vector_norm", "norm", "std", "var", "cumprod", "prod", "lgamma", "tan", "logit", "softmax", "log_softmax",
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
KEPT = ("_saved_self", "_saved_input", "_saved_other", "_saved_mat1", "_saved_mat2", "_saved_weight", "_saved_target")


class Origin(NamedTuple):
    """An operation, and what went into it, as far as it was kept."""

    op: str | None
    given: Any = None  # a tensor
    finite: bool | None = None  # what is known of that
    gave: Any = None  # what came out of it, where that could be asked again


def forward(tensor: Any, since: int) -> Origin:
    """The operation that made a value in this tensor; `since`: nodes with a lower number are not asked."""
    waiting = [tensor.grad_fn]
    seen: set[Any] = set()
    names: list[str] = []
    came: Origin | None = None
    for node in waiting:  # it grows meanwhile
        if node is None or node in seen or len(seen) > MOST_NODES or not _made(node, since):
            continue
        seen.add(node)
        names.append(name(node))
        if _by_itself(names[-1], node, tensor):
            return Origin(names[-1])
        kept, whole = _kept(node)
        wrong = next((one for one in kept if finite.look(one)), None)
        if whole and wrong is None:
            gave = _asked_again(names[-1], kept[0])
            if gave is not None or _result_bad(node) or len(names) == 1:
                return Origin(names[-1], kept[0], True, gave)
        elif wrong is not None:
            came = Origin(names[-1], wrong, False)
        waiting += [following for following, _ in node.next_functions]
    return came or Origin(_choose(names))


def backward(root: Any, since: int, until: int) -> str | None:
    """The operation, of those with a number in this range, whose gradient it was; told by its name alone: it keeps nothing now."""
    waiting, seen = [root], {root}
    names: list[str] = []
    for node in waiting:
        if node is None or len(seen) > MOST_NODES * 10:
            break
        if _made(node, since) and node._sequence_nr() < until:
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
    exponent = getattr(node, "_saved_exponent", None) if op == "pow" else None
    return op in STEEP and not (isinstance(exponent, int | float) and exponent >= 1)


def name(node: Any) -> str:
    """The operation of a node: `LogBackward0` is of `log`."""
    word = re.sub(r"(Backward|Impl)\d*$", "", node.name().rpartition("::")[2])
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word).lower()


def _made(node: Any, since: int) -> bool:
    """Is this node of a call since then? Those that add to a parameter's gradient are the parameter's."""
    return bool(node.next_functions) and node._sequence_nr() >= since


def _choose(names: list[str]) -> str | None:
    if len(set(names)) == 1:
        return names[0]
    return next((one for one in RISKY if one in names), None)


def _kept(node: Any) -> tuple[list[Any], bool]:
    """What went into a node, as far as it has kept it and still has it; and whether that is all."""
    values = [_read(node, attribute) for attribute in KEPT if hasattr(type(node), attribute)]
    return [one for one in values if one is not None], bool(values) and values[0] is not None


def _read(node: Any, attribute: str) -> Any:
    try:
        value = getattr(node, attribute)
    except RuntimeError:  # the pass has gone through it
        return None
    return value if isinstance(value, sys.modules["torch"].Tensor) else None


def _by_itself(op: str, node: Any, tensor: Any) -> bool:
    """Has this operation made what it was not given? The mean of nothing; or all of it is what was filled in."""
    if op == "mean":
        return getattr(node, "_saved_self_sym_numel", 1) == 0
    mask = _read(node, "_saved_mask") if op == "masked_fill" and node is tensor.grad_fn else None
    return mask is not None and not bool((finite.bad(tensor) & ~mask.detach().cpu()).any())


def _result_bad(node: Any) -> bool:
    result = _read(node, "_saved_result") if hasattr(type(node), "_saved_result") else None
    return result is not None and finite.look(result) != 0


def _asked_again(op: str, given: Any) -> Any:
    """What comes out of a simple operation; None if it is not one of those, or all that comes is finite."""
    if op not in UNARY:
        return None
    torch = sys.modules["torch"]
    with torch.no_grad():
        gave = getattr(torch, op)(given.detach())
    return gave if finite.look(gave) else None
