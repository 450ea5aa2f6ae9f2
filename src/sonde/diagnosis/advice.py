"""The first NaN in words: where it appeared, in which items, with which inputs, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.store.probe import PERHAPS

if TYPE_CHECKING:
    from sonde.analysis.postmortem.births import Birth, Carrier, Certificate, Input

KINDS = {"nan": "NaN", "inf": "infinity", "nan and inf": "NaN and infinity", None: "a non-finite value"}
FIRST = {"nan": "First NaN", "inf": "First infinity", "nan and inf": "First NaN", None: "First non-finite value"}
STAGES = {
    "dataset": "already in the dataset's output",
    "collate": "already in the batch from the collate function",
    "loader": "already in the batch from the loader",
    "loop": "in the batch, changed after it left the loader",
    None: "already in the data",
}
NO_LOADER = "already in the model's input"
MOST_NAMED = 4  # items
LARGE = 1e30  # a number that is about to leave the range of float32


def sentence(birth: Birth) -> str:
    """`layer `encoder.3.norm`, item 8412 of batch 812 (step 812, rank 0); inputs finite, max 3.4e38`."""
    one = birth.certificate
    words = [place(one), _carriers(one, birth.counter)]
    if one.where == "data":
        words.reverse()  # the item is what to look at
    tail = origin(one)
    when = ", ".join([_moment(one), *_who(birth)])
    return ", ".join(word for word in words if word) + f" ({when})" + (f"; {tail}" if tail else "")


def unused(birth: Birth) -> str:
    """The same of one that came to nothing, as a note."""
    return f"{amount(birth.certificate)} that never reached the loss or a gradient: {sentence(birth)}"


def _moment(one: Certificate) -> str:
    step = "step unknown" if one.step is None else f"step {one.step}"
    epoch = f" of epoch {one.epoch}" if one.epoch is not None else ""
    return f"{step}{epoch}{', evaluation' if one.evaluation else ''}"


def _who(birth: Birth) -> list[str]:
    found = [] if birth.rank is None else [f"rank {birth.rank}"]
    return found if birth.worker is None else [*found, f"loader worker {birth.worker}"]


def place(one: Certificate) -> str:
    """`layer `encoder.3.norm` (LayerNorm)`, `the code between `a` and `b` (log, train.py:41 in forward)`, `the loss`."""
    if one.where == "data":
        return NO_LOADER if one.stage == "loop" and one.batch is None else STAGES[one.stage]
    if one.where == "gradient":
        return f"the gradient of a parameter of {_quoted(one.layer, 'the model', 'layer ')}{_details(one.type)}"
    if one.after is not None or one.before is not None or (one.where == "forward" and one.op is not None):
        return _between(one)
    if one.where == "loss":
        return "the loss" + _details(one.type or one.layer, one.op, spot(one))
    named = _quoted(one.layer, "a layer", "layer ") + _details(one.type)
    return f"the backward pass of {named}" if one.where == "backward" else named


def _between(one: Certificate) -> str:
    if not one.producer and one.layer is not None and one.where == "forward":
        return f"layer `{one.layer}` or the code before it{_details(one.op, spot(one))}"
    ends = [f"`{name}`" for name in (one.after, one.before) if name is not None]
    side = "between" if len(ends) == 2 else "after" if one.after is not None else "before"
    where = f" {side} {' and '.join(ends)}" if ends else ""
    inside = f" in `{one.layer}`" if one.layer else ""
    within = {"loss": "the loss, computed by ", "backward": "the backward pass of "}.get(one.where, "")
    return f"{within}the code{where}{inside}{_details(one.op, spot(one))}"


def spot(one: Certificate) -> str | None:
    """`train.py:41 in forward`; `before train.py:41 in forward` where that is the line at which it was noticed."""
    noticed = one.before is not None or (one.where == "loss" and one.layer is None)
    return f"before {one.code}" if one.code is not None and noticed else one.code


def _quoted(name: str | None, otherwise: str, word: str) -> str:
    return otherwise if name is None else f"{word}`{name}`"


def _details(*words: str | None) -> str:
    known = [word for word in words if word]
    return f" ({', '.join(known)})" if known else ""


def carriers(one: Certificate) -> str:
    """`item 8412`, `items 3, 8 and 11`, `5 items (3, 8, 11, 12 and 1 more)`; nothing if they are unknown."""
    if not one.items:
        return ""
    names = [name_of(item) for item in one.items]
    if one.items_total == 1:
        return f"item {names[0]}"
    if one.items_total <= MOST_NAMED:
        return f"items {units.listed(names, MOST_NAMED)}"
    return f"{units.plural(one.items_total, 'item')} ({', '.join(names[:MOST_NAMED])} and {one.items_total - MOST_NAMED} more)"


def name_of(item: Carrier) -> str:
    """`8412`, `8412 (id M31)`, `'M31'`, `at position 3`."""
    if item.index is not None:
        return str(item.index) if item.id in (None, str(item.index)) else f"{item.index} (id {item.id})"
    return f"'{item.id}'" if item.id is not None else f"at position {item.position}"


def _carriers(one: Certificate, counter: int | None) -> str:
    batch = "" if one.batch_number is None else f"batch {one.batch_number}"
    if not one.items:
        return f"{batch} (its items cannot be identified)" if batch else ""
    counted = "" if counter is None else f" (counted by worker {counter})"
    return carriers(one) + counted + (f" of {batch}" if batch else "")


def origin(one: Certificate) -> str:
    """`inputs finite, max 3.4e38`: whether it was made there, and of what."""
    if one.where in ("data", "gradient"):
        return ""
    if not one.inputs_known:
        layer = one.layer is not None and one.op is None and one.after is None and one.before is None
        return "inputs unknown" + (", because they are modified in place" if layer else "")
    if any(input.finite is False for input in one.inputs):
        return "an input was already non-finite"
    if not one.producer:
        return "unknown whether its inputs were finite"
    if one.where == "backward":
        return "its incoming gradient was finite"
    return f"inputs finite{_extent(one.inputs)}{_broken(one)}"


def _broken(one: Certificate) -> str:
    if not one.parameters:
        return ""
    names = units.listed([f"`{name}`" for name in one.parameters], MOST_NAMED)
    return f", but {names} of the layer {'was' if len(one.parameters) == 1 else 'were'} already non-finite"


def _extent(inputs: list[Input]) -> str:
    low = min((one.min for one in inputs if one.min is not None), default=None)
    high = max((one.max for one in inputs if one.max is not None), default=None)
    words = [f"min {units.brief(low)}"] if low is not None and low < 0 else []
    return ", ".join(["", *words, *([] if high is None else [f"max {units.brief(high)}"])])


def amount(one: Certificate, *, capital: bool = False) -> str:
    """`NaN in 3 of 4,096 values (32 x 128, float32)`."""
    size = "" if not one.shape else " x ".join(map(str, one.shape))
    described = ", ".join(word for word in (size, one.dtype) if word)
    share = ""
    if one.count is not None:
        share = (
            f" in {one.count:,} of {units.plural(one.total, 'value')}"
            if one.total is not None
            else f" in {units.plural(one.count, 'value')}"
        )
    kind = KINDS[one.kind]
    return (kind[0].upper() + kind[1:] if capital else kind) + share + (f" ({described})" if described else "")


def what_to_do(one: Certificate) -> str:
    """What to do, for the place where it appeared, without a full stop."""
    items = carriers(one)
    if one.where == "data":
        return _for_data(one, items)
    if not one.producer:
        return f"Check {items or 'its batch'} and the code before {place(one)}"
    if one.parameters:
        return (
            f"Check what wrote {units.listed(one.parameters, MOST_NAMED)} of {_own(one)}: earlier updates, a "
            "checkpoint or the initial values"
        )
    if one.where in ("backward", "gradient"):
        return (
            f"Check{_at(items)} for a division by 0, or the square root of 0, in the forward pass of "
            f"{_own(one)}. Clip gradients or lower the learning rate"
        )
    if one.op is not None:
        return _for_operation(one, one.op, _first(items))
    if any(abs(edge) >= LARGE for input in one.inputs for edge in (input.min, input.max) if edge is not None):
        return f"The input of {_own(one)} is close to the dtype's maximum: rescale or clamp it{_first(items)}"
    return f"Check the input of {_own(one)}{_first(items)}"


def is_guessed(one: Certificate) -> bool:
    """Was the operation identified by its name alone?"""
    return one.op is not None and one.op.startswith(PERHAPS)


def _for_operation(one: Certificate, op: str, first: str) -> str:
    where = spot(one) or _own(one)
    where = where if where.startswith("before ") else f"in {where}"
    if is_guessed(one):
        return f"Check the operations {where}, {op}{first}"
    return f"Keep the input of {op} {where} within its valid range{first}"


def _first(items: str) -> str:
    return f", starting with {items}" if items else ""


def _at(items: str) -> str:
    return f" {items}" if items else ""


def _for_data(one: Certificate, items: str) -> str:
    if one.stage == "collate":
        return f"Check the collate function: it made a non-finite batch from finite items{_first(items)}"
    if one.stage == "loop" and one.batch is None:
        return f"Check what the loop passes to the model{_first(items)}"
    if one.stage == "loop":
        return (
            "Check what the loop does with the batch before the model: it was finite when it left the "
            f"loader{_first(items)}"
        )
    return f"Check {items or 'the batch'}"


def _own(one: Certificate) -> str:
    if one.layer:
        return f"`{one.layer}`"
    return "the loss" if one.where == "loss" else "the code there"
