"""The certificate of a first non-finite value: its fields, read from untrusted JSON, and its wording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sonde.store import probe
from sonde.store.untrusted import Fields
from sonde.units import brief, listed, plural

WHERE = ("data", "forward", "loss", "backward", "gradient")
STAGES = ("dataset", "collate", "loader", "loop")
KINDS = ("nan", "inf", "nan and inf")
MOST_ITEMS = 16
MOST_INPUTS = 8
KIND_WORDS = {"nan": "NaN", "inf": "infinity", "nan and inf": "NaN and infinity", None: "a non-finite value"}
FIRST_WORDS = {"nan": "First NaN", "inf": "First infinity", "nan and inf": "First NaN", None: "First non-finite value"}
STAGE_WORDS = {
    "dataset": "already in the dataset's output",
    "collate": "already in the batch from the collate function",
    "loader": "already in the batch from the loader",
    "loop": "in the batch, changed after it left the loader",
    None: "already in the data",
}
NO_LOADER = "already in the model's input"
MOST_NAMED = 4  # items


@dataclass(frozen=True)
class AffectedItem:
    """An item of the batch that carries it: its place in the batch, and what the dataset calls it, if that is known."""

    position: int | None
    index: int | None
    id: str | None


@dataclass(frozen=True)
class Input:
    """One input of the place where it was born. Numbers are those of the finite values; None: not known."""

    name: str
    shape: tuple[int, ...] | None
    dtype: str | None
    min: float | None
    max: float | None
    mean: float | None
    finite: bool | None


@dataclass(frozen=True)
class Certificate:
    """Where a non-finite value was seen first. `producer`: its inputs were all finite, so it was made here."""

    where: str  # one of WHERE
    producer: bool
    layer: str | None
    type: str | None
    after: str | None  # made by code between these two layers
    before: str | None
    op: str | None
    code: str | None  # "train.py:41 in forward"
    stage: str | None  # one of STAGES, of the data
    kind: str | None  # one of KINDS
    count: int | None  # values that are not finite
    total: int | None
    shape: tuple[int, ...] | None
    dtype: str | None
    inputs: list[Input]
    inputs_known: bool  # not if the layer changed them in place
    parameters: list[str]  # of the layer, that were not finite already
    items: list[AffectedItem]  # the first of them; empty: cannot be determined
    items_total: int
    batch: int | None  # the key
    step: int | None
    epoch: int | None
    evaluation: bool
    scaled: bool

    @property
    def batch_number(self) -> int | None:
        """The number of the batch in its epoch."""
        return None if self.batch is None else probe.read_batch_key(self.batch).number


def read_certificate(value: object) -> Certificate | None:
    """The certificate in a JSON object; None if it says not even where."""
    fields = Fields(value)
    where = fields.word("where", WHERE)
    if where is None:
        return None
    items = [
        AffectedItem(one.count("position"), one.whole("index"), one.text("id"))
        for one in fields.objects("items", MOST_ITEMS)
    ]
    known = fields.flag("inputs_known")
    return Certificate(
        where=where,
        producer=fields.flag("producer") is True,
        layer=fields.text("layer"),
        type=fields.text("type"),
        after=fields.text("after"),
        before=fields.text("before"),
        op=fields.text("op"),
        code=fields.text("code"),
        stage=fields.word("stage", STAGES),
        kind=fields.word("kind", KINDS),
        count=fields.count("count"),
        total=fields.count("total"),
        shape=fields.shape("shape"),
        dtype=fields.text("dtype"),
        inputs=[_input(one) for one in fields.objects("inputs", MOST_INPUTS)],
        inputs_known=known is not False,
        parameters=fields.texts("parameters", MOST_INPUTS),
        items=items,
        items_total=max(fields.count("items_total") or 0, len(items)),
        batch=fields.count("batch"),
        step=fields.count("step"),
        epoch=fields.count("epoch"),
        evaluation=fields.flag("evaluation") is True and where not in ("backward", "gradient"),
        scaled=fields.flag("scaled") is True,
    )


def _input(fields: Fields) -> Input:
    numbers = (fields.number("min"), fields.number("max"), fields.number("mean"))
    return Input(
        fields.text("name") or "", fields.shape("shape"), fields.text("dtype"), *numbers, fields.flag("finite")
    )


def sentence(one: Certificate, process: Sequence[str] = (), counter: int | None = None) -> str:
    """`layer `encoder.3.norm`, item 8412 of batch 812 (step 812, rank 0); inputs finite, max 3.4e38`.

    `process`: its rank and worker in words. `counter`: the loader worker that numbers the items.
    """
    words = [place(one), _items_of_batch(one, counter)]
    if one.where == "data":
        words.reverse()  # the item is what to look at
    tail = origin(one)
    when = ", ".join([_moment(one), *process])
    return ", ".join(word for word in words if word) + f" ({when})" + (f"; {tail}" if tail else "")


def announcement(one: Certificate, process: Sequence[str] = (), counter: int | None = None) -> str:
    """The sentence that says it first: `First NaN: ... NaN in 3 of 4,096 values.`"""
    return f"{FIRST_WORDS[one.kind]}: {sentence(one, process, counter)}. {amount(one, capital=True)}."


def _moment(one: Certificate) -> str:
    step = "step unknown" if one.step is None else f"step {one.step}"
    epoch = f" of epoch {one.epoch}" if one.epoch is not None else ""
    return f"{step}{epoch}{', evaluation' if one.evaluation else ''}"


def place(one: Certificate) -> str:
    """`layer `encoder.3.norm` (LayerNorm)`, `the code between `a` and `b` (log, train.py:41 in forward)`, `the loss`."""
    if one.where == "data":
        return NO_LOADER if one.stage == "loop" and one.batch is None else STAGE_WORDS[one.stage]
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


def affected_items(one: Certificate) -> str:
    """`item 8412`, `items 3, 8 and 11`, `5 items (3, 8, 11, 12 and 1 more)`; nothing if they are unknown."""
    if not one.items:
        return ""
    names = [item_name(item) for item in one.items]
    if one.items_total == 1:
        return f"item {names[0]}"
    if one.items_total <= MOST_NAMED:
        return f"items {listed(names, MOST_NAMED)}"
    return (
        f"{plural(one.items_total, 'item')} ({', '.join(names[:MOST_NAMED])} and {one.items_total - MOST_NAMED} more)"
    )


def item_name(item: AffectedItem) -> str:
    """`8412`, `8412 (id M31)`, `'M31'`, `at position 3`."""
    if item.index is not None:
        return str(item.index) if item.id in (None, str(item.index)) else f"{item.index} (id {item.id})"
    return f"'{item.id}'" if item.id is not None else f"at position {item.position}"


def _items_of_batch(one: Certificate, counter: int | None) -> str:
    batch = "" if one.batch_number is None else f"batch {one.batch_number}"
    if not one.items:
        return f"{batch} (its items cannot be identified)" if batch else ""
    counted = "" if counter is None else f" (counted by worker {counter})"
    return affected_items(one) + counted + (f" of {batch}" if batch else "")


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
    names = listed([f"`{name}`" for name in one.parameters], MOST_NAMED)
    return f", but {names} of the layer {'was' if len(one.parameters) == 1 else 'were'} already non-finite"


def _extent(inputs: list[Input]) -> str:
    low = min((one.min for one in inputs if one.min is not None), default=None)
    high = max((one.max for one in inputs if one.max is not None), default=None)
    words = [f"min {brief(low)}"] if low is not None and low < 0 else []
    return ", ".join(["", *words, *([] if high is None else [f"max {brief(high)}"])])


def amount(one: Certificate, *, capital: bool = False) -> str:
    """`NaN in 3 of 4,096 values (32 x 128, float32)`."""
    size = "" if not one.shape else " x ".join(map(str, one.shape))
    described = ", ".join(word for word in (size, one.dtype) if word)
    share = ""
    if one.count is not None:
        share = (
            f" in {one.count:,} of {plural(one.total, 'value')}"
            if one.total is not None
            else f" in {plural(one.count, 'value')}"
        )
    kind = KIND_WORDS[one.kind]
    return (kind[0].upper() + kind[1:] if capital else kind) + share + (f" ({described})" if described else "")
