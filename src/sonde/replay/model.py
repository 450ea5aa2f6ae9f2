"""Computes the forward of a recorded step again, to see whether this machine gives the numbers of the run.

The fingerprints of the run say which tensors of the batch the model was called with, and what each leaf layer gave. Backward and
update are not computed: that needs the loss and the optimizer of the program.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from sonde import units
from sonde.compare.divergence import OUTPUT
from sonde.compare.fingerprint import Print, differ, read_fingerprints
from sonde.compare.setup import setup_of
from sonde.errors import ReplayError
from sonde.probes.layers import names as naming
from sonde.probes.learning.fingerprint import BEFORE, FORWARD, INPUT, RANDOM_EVERY, UPDATE, measure, tensors
from sonde.replay.conditions import AUTOCAST, NONE, Computed, Conditions, differences, random_numbers
from sonde.values.nested import parts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sonde.analysis.run import Run

MOST_STEPS = 8  # that a message lists
INSIDE = ("model", "state_dict", "model_state_dict")  # where checkpoints keep the weights
# What torch raises for a file that is no checkpoint, or one of another model.
REFUSALS = (OSError, EOFError, UnpicklingError, RuntimeError, ValueError, KeyError, TypeError, AttributeError)


@dataclass(frozen=True)
class ForwardComparison:
    """What was compared. `weights`: are they those of the step? None: the run has no fingerprints of them.

    `parted`: the first fingerprint of the run that differs here, and the one here; `unsteady`: the first that differs between two
    computations here; `reasons`: what else may explain that the numbers differ.
    """

    step: int
    compared: int
    weights: bool | None
    parted: tuple[Print, Print] | None
    unsteady: tuple[Print, Print] | None
    reasons: list[str] = field(default_factory=list)

    @property
    def same(self) -> bool:
        """Does this machine give the numbers of the run?"""
        return self.parted is None and self.unsteady is None

    def __str__(self) -> str:
        lines = [self._head()]
        if self.unsteady is not None:
            lines.append(f"Two forwards here differ too, first in {_named(self.unsteady[0])}: {_sums(*self.unsteady)}.")
        elif self.parted is not None:
            lines.append("Two forwards here agree bit for bit.")
        return "\n".join([*lines, *(self.reasons if not self.same else [])])

    def _head(self) -> str:
        if self.parted is None:
            return f"Same numbers: {units.plural(self.compared, 'fingerprint')} of the forward agree with the run bit for bit."
        return f"DIFFERENT NUMBERS: {_named(self.parted[0])} is the first to differ: its sum is {self.parted[1].value!r}, in the run {self.parted[0].value!r}."


def _named(one: Print) -> str:
    return "the output of the model" if one.name == OUTPUT else f"layer {one.name}"


def _sums(one: Print, other: Print) -> str:
    return f"sums {one.value!r} and {other.value!r}"


def forward(run: Run, step: int, rank: int, batch: Any, model: Any) -> ForwardComparison:
    """Call the model with this batch as the run did in this step, twice, and compare. Raises ReplayError if that is impossible."""
    every = [one for one in read_fingerprints(run) if one.rank == rank]
    recorded = _of_step(every, step)
    call = _call(model, batch, recorded)
    setup = setup_of(run)
    conditions = Conditions(setup.get("threads"), setup.get(AUTOCAST, NONE), random_numbers(run, step, rank))
    with conditions.threads_set():
        here, again = (conditions.computed(model, call, step, rank) for _ in range(2))
    known = {one.place: one for one in here.prints}
    pairs = [(one, known[one.place]) for one in recorded if one.direction == FORWARD and one.place in known]
    if not pairs:
        raise ReplayError(
            f"No layer of {type(model).__name__} has a name that occurs in the run. Is it the same model?"
        )
    weights = _are_weights(every, step, model)
    return ForwardComparison(
        step,
        len(pairs),
        weights,
        _first(pairs),
        _first(zip(here.prints, again.prints, strict=True)),
        [*_about_weights(step, weights), *_about_random(here, conditions), *differences(setup, model)],
    )


def _about_weights(step: int, weights: bool | None) -> list[str]:
    if weights is False:
        return [f"The weights are not those that step {step} began with. Load them with --weights."]
    if weights is None:
        return ["The run has no fingerprints of the weights before this step: they may differ."]
    return [f"The weights are those that step {step} began with."]


def _about_random(here: Computed, conditions: Conditions) -> list[str]:
    if not here.draws or conditions.random is not None:
        return []
    return [
        (
            "The model draws random numbers (dropout), and their state at this step was not recorded. It is saved "
            f"with fingerprints, at most every {RANDOM_EVERY} steps."
        )
    ]


def load_weights(model: Any, path: str) -> None:
    """Load a checkpoint of torch into a model: its `state_dict`, or a dict that has it. Raises ReplayError."""
    import torch

    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
        for name in INSIDE:
            found = found[name] if isinstance(found, dict) and isinstance(found.get(name), dict) else found
        naming.inside(model).load_state_dict(found)
    except REFUSALS as error:
        said = str(error).strip().partition("\n")[0].partition(". ")[0] or type(error).__name__
        raise ReplayError(f"Cannot load {path} into {type(model).__name__}: {said.rstrip('.:')}.") from error


def _of_step(every: list[Print], step: int) -> list[Print]:
    """Those of the first forward of a step."""
    found = [one for one in every if one.step == step]
    if found:
        return found
    steps = sorted({one.step for one in every})
    if not steps:
        raise ReplayError("The run has no fingerprints of this rank. Record with: sonde run --fingerprint")
    listed = ", ".join(map(str, steps[:MOST_STEPS])) + (" ..." if len(steps) > MOST_STEPS else "")
    raise ReplayError(f"Step {step} has no fingerprints. These steps have: {listed}")


# ── the call ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _call(model: Any, batch: Any, recorded: list[Print]) -> Callable[[Any], Any]:
    """How to call the model: with the tensors of the batch that it was called with in the run."""
    asked = [one for one in recorded if one.direction == INPUT and one.nth == 1]
    paths = _found(batch, asked)
    every = list(tensors(batch))
    parameters = inspect.signature(model.forward).parameters
    if len(paths) == len(every) > 1 and len(parameters) == 1:
        return lambda called: called(batch)
    if isinstance(batch, dict) and all(str(name) in parameters for name, _ in paths):
        return lambda called: called(**dict(paths))
    return lambda called: called(*(tensor for _, tensor in paths))


def _found(batch: Any, asked: list[Print]) -> list[tuple[str, Any]]:
    """The tensors of the batch with these fingerprints, each with its name in it."""
    by_digest: dict[int, tuple[str, Any]] = {}
    for way, part in parts_of(batch):
        if hasattr(part, "untyped_storage") and (taken := measure(part)) is not None:
            by_digest.setdefault(taken[0], (str(way[-1]) if way else "", part))
    missing = [one.name for one in asked if one.digest not in by_digest]
    if missing:
        raise ReplayError(
            f"Input {missing[0]} of the model is not in the batch: the program changed the data after the loader, or the "
            "data differ. Without the input, nothing can be compared."
        )
    return [by_digest[one.digest] for one in asked]


def _are_weights(every: list[Print], step: int, model: Any) -> bool | None:
    """Are the weights those that the step began with? Known from its own fingerprints, or from the step before."""
    before: Mapping[str, Print] = {
        one.name: one
        for one in every
        if (one.step, one.direction) in ((step, BEFORE), (step - 1, UPDATE)) and one.nth == 1
    }
    known = [
        (before[name], taken) for name, one in naming.parameters(model) if name in before and (taken := measure(one))
    ]
    if not known:
        return None
    return not any(differ(one, one._replace(digest=taken[0], value=taken[1])) for one, taken in known)


def _first(pairs: Any) -> tuple[Print, Print] | None:
    return next(((one, other) for one, other in pairs if differ(one, other)), None)
