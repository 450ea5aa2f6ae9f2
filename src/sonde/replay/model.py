"""Computes the forward of a recorded step again, to see whether this machine gives the numbers of the run.

The fingerprints of the run say which tensors of the batch the model was called with, and what each leaf layer gave. Backward and
update are not computed: that needs the loss and the optimizer of the program.
"""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from dataclasses import dataclass
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from sonde import units
from sonde.compare.fingerprint import Print, differ, read_fingerprints
from sonde.errors import ReplayError
from sonde.probes.layers import names as naming
from sonde.probes.learning.fingerprint import FORWARD, INPUT, UPDATE, measure, tensors
from sonde.replay.target import USUAL
from sonde.values.nested import parts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sonde.analysis.run import Run

OUTPUT = "output"  # the name of the fingerprint of the whole model
MOST_STEPS = 8  # that a message lists
INSIDE = ("model", "state_dict", "model_state_dict")  # where checkpoints keep the weights
# What torch raises for a file that is no checkpoint, or one of another model.
REFUSALS = (OSError, EOFError, UnpicklingError, RuntimeError, ValueError, KeyError, TypeError, AttributeError)


@dataclass(frozen=True)
class ForwardComparison:
    """What was compared. `weights`: are they those of the step? None: the run has no fingerprints of them.

    `parted`: the first fingerprint of the run that differs here, and the one here; `unsteady`: the first that differs between two
    computations here.
    """

    step: int
    compared: int
    weights: bool | None
    parted: tuple[Print, Print] | None
    unsteady: tuple[Print, Print] | None

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
        if self.weights is False:
            lines.append(f"The weights are not those that step {self.step} began with. Load them with --weights.")
        elif self.parted is not None and self.weights is None:
            lines.append("The run has no fingerprints of the weights before this step: they may be other ones.")
        return "\n".join(lines)

    def _head(self) -> str:
        if self.parted is None:
            return f"Same numbers: {units.plural(self.compared, 'fingerprint')} of the forward agree with the run bit for bit."
        return f"OTHER NUMBERS: {_named(self.parted[0])} is the first to differ: its sum is {self.parted[1].value!r}, in the run {self.parted[0].value!r}."


def _named(one: Print) -> str:
    return "the output of the model" if one.name == OUTPUT else f"layer {one.name}"


def _sums(one: Print, other: Print) -> str:
    return f"sums {one.value!r} and {other.value!r}"


def forward(run: Run, step: int, rank: int, batch: Any, model: Any) -> ForwardComparison:
    """Call the model with this batch as the run did in this step, twice, and compare. Raises ReplayError if that is impossible."""
    every = [one for one in read_fingerprints(run) if one.rank == rank]
    recorded = _of_step(every, step)
    call = _call(model, batch, recorded)
    here, again = (_computed(model, call, step, rank) for _ in range(2))
    known = {one.place: one for one in here}
    pairs = [(one, known[one.place]) for one in recorded if one.direction == FORWARD and one.place in known]
    if not pairs:
        raise ReplayError(f"No layer of {type(model).__name__} has a name that the run knows. Is it the same model?")
    return ForwardComparison(
        step, len(pairs), _are_weights(every, step, model), _first(pairs), _first(zip(here, again, strict=True))
    )


def load_weights(model: Any, path: str) -> None:
    """Load a checkpoint of torch into a model: its `state_dict`, or a dict that has it. Raises ReplayError."""
    import torch

    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
        for name in INSIDE:
            found = found[name] if isinstance(found, dict) and isinstance(found.get(name), dict) else found
        model.load_state_dict(found)
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


# ── the layers ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _computed(model: Any, call: Callable[[Any], Any], step: int, rank: int) -> list[Print]:
    """The fingerprints of one forward of a copy, in training mode; random numbers are the same each time."""
    import torch

    model = copy.deepcopy(model).train()
    made: list[Print] = []
    counts: Counter[str] = Counter()

    def note(name: str, output: Any) -> None:
        counts[name] += 1
        found = filter(None, map(measure, tensors(output)))
        made.extend(Print(rank, step, FORWARD, name, counts[name], *taken) for taken in found)

    hooks = [module.register_forward_hook(_noting(note, name)) for name, module in _leaves(model)]
    try:
        with torch.random.fork_rng(devices=[]):
            note(OUTPUT, call(model))
    except USUAL as error:
        raise ReplayError(f"{type(model).__name__} fails on this batch: {type(error).__name__}: {error}") from error
    finally:
        for hook in hooks:
            hook.remove()
    return made


def _noting(note: Callable[[str, Any], None], name: str) -> Callable[..., None]:
    def hook(_module: Any, _inputs: Any, output: Any) -> None:
        note(name, output)

    return hook


def _leaves(model: Any) -> Iterator[tuple[str, Any]]:
    """The leaf layers, with the names that a recording gives them."""
    for one in naming.layers(model):
        if next(one.module.children(), None) is None:
            yield one.name or naming.kind(model), one.module


def _are_weights(every: list[Print], step: int, model: Any) -> bool | None:
    """Are the weights those that the step began with? Known from the fingerprints of the step before."""
    before: Mapping[str, Print] = {
        one.name: one for one in every if one.step == step - 1 and one.direction == UPDATE and one.nth == 1
    }
    known = [
        (before[name], taken) for name, one in model.named_parameters() if name in before and (taken := measure(one))
    ]
    if not known:
        return None
    return not any(differ(one, one._replace(digest=taken[0], value=taken[1])) for one, taken in known)


def _first(pairs: Any) -> tuple[Print, Print] | None:
    return next(((one, other) for one, other in pairs if differ(one, other)), None)
