"""What to do about a first non-finite value, by its origin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.store.certificate import MOST_NAMED, affected_items, place, spot
from sonde.store.probe import PERHAPS

if TYPE_CHECKING:
    from sonde.store.certificate import Certificate

LARGE = 1e30  # a number that is about to leave the range of float32


def what_to_do(one: Certificate) -> str:
    """What to do, for the place where it appeared, without a full stop."""
    items = affected_items(one)
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
