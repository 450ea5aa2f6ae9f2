"""ONE_CLASS: batches have a single class each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import finding
from sonde.finding import CRITICAL, WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


NO_LABEL = (
    "len",
    "size",
    "shape",
    "count",
    "index",
    "weight",
    "mask",
    "epoch",
    "task",
    "domain",
    "source",
    "pos",
    "id",
    "type",
    "time",
)
CLASSES = 100_000  # a field with larger numbers holds something else


def one_class(facts: Facts, policy: Policy) -> Finding | None:
    """Many batches have a single class, and not always the same one: the data is sorted. Needs `--learning`."""
    for one in facts.learning.batches.labels:
        name, single = str(one.which["field"]).rpartition(".")[2].lower(), one["single"].or_zero()
        share = single / max(1.0, one["batches"].or_zero())
        if any(word in name for word in NO_LABEL) or one["high"].or_zero() - one["low"].or_zero() > CLASSES:
            continue
        if single < policy["one_class.least"] or share < policy["one_class.warn_share"] or one["classes"].or_zero() < 2:
            continue
        return finding(
            "ONE_CLASS",
            CRITICAL if share >= policy["one_class.critical_share"] else WARN,
            0.85,
            f"{units.share(share)} of the sampled batches have a single class in field {one.which['field']}, not always the same one.",
            "Shuffle the data: DataLoader(shuffle=True), or mix classes in the sampler or the shards.",
            score=share,
            figures={
                "sampled batches": one["batches"],
                "with one class": one["single"],
                "classes among these": one["classes"],
            },
            field=one.which["field"],
        )
    return None
