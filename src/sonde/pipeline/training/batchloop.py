"""The loops over batches, as engines of ignite: a step of training, an evaluation, an inference.

A batch goes the same way in all of them: `prepare_inputs` makes NumPy arrays of it, they become tensors on the device, and
a method of the model gets those. An exception of any of them reaches the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.ai.tree import ai
from sonde.errors import ConfigError, ModelError
from sonde.pipeline.tracing import of_inputs, of_model
from sonde.pipeline.training import distributed
from sonde.pipeline.training.distributed import ALONE
from sonde.pipeline.training.ignite import engine
from sonde.pipeline.training.inputs import prepare, prepared, to_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import torch
    from ignite.engine import Engine

    from sonde.pipeline.progress import Progress
    from sonde.pipeline.training.distributed import World


class LoopSetting(NamedTuple):
    """What a loop works with."""

    model: Any
    device: torch.device
    progress: Progress
    world: World = ALONE

    def inputs(self) -> Callable[[dict[str, Any]], Any]:
        """What makes the model's inputs, as tensors, of a collated batch."""
        name = type(self.model).__name__
        prepare_inputs = of_inputs(prepare(type(self.model)), name)
        return lambda batch: to_tensors(prepared(prepare_inputs, batch, name), self.device)


def method(model: Any, name: str) -> Callable[[Any], Any]:
    """A method of the model that takes a batch; raises ModelError if there is none."""
    if not callable(getattr(model, name, None)):
        kind = type(model).__name__
        raise ModelError(
            f"{kind} has no {name}(batch). Add one; docs/reference/pipeline/model.md describes its result."
        )
    return of_model(model, name)


def size_of(batch: dict[str, Any]) -> int:
    """How many items a collated batch has."""
    return len(batch["object_id"])


# ── losses and other numbers ─────────────────────────────────────────────────────────────────────────────────────────


def loss_of(given: Any, model: Any, name: str) -> Any:
    """The loss in what `train_batch` or its like has returned, as a scalar tensor or a number."""
    what = f"{type(model).__name__}.{name}"
    if not isinstance(given, dict):
        raise ModelError(f'{what} returned {type(given).__name__}. It must return a dict with the key "loss".')
    if "loss" not in given:
        raise ModelError(f'{what} returned a dict without "loss": it has {", ".join(map(str, given)) or "nothing"}.')
    loss = given["loss"]
    if number(loss) is None:
        shape = getattr(loss, "shape", None)
        shown = type(loss).__name__ + ("" if shape is None else f" of shape {tuple(shape)}")
        raise ModelError(
            f"The loss of {what} is not a single number, but {shown}. Reduce it, for example with .mean()."
        )
    return loss


def number(value: Any) -> float | None:
    """A value as a number, if it is one: also in an array or tensor of one element."""
    if isinstance(value, bool | int | float):
        return float(value)
    if getattr(value, "ndim", None) is not None and hasattr(value, "item"):
        single = (value.numel() if hasattr(value, "numel") else value.size) == 1
        return float(value.item()) if single and not isinstance(value.item(), complex | str | bytes) else None
    return None


class Means:
    """The mean over all items of each number that a model gives, batch by batch."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.counts: dict[str, float] = {}

    def add(self, given: dict[str, Any], count: int) -> dict[str, float]:
        """Take in the numbers of a batch of `count` items; what is no number is passed over."""
        found = {str(name): value for name, one in given.items() if (value := number(one)) is not None}
        for name, value in found.items():
            self.sums[name] = self.sums.get(name, 0.0) + value * count
            self.counts[name] = self.counts.get(name, 0.0) + count
        return found

    def over(self, world: World) -> dict[str, float]:
        """The means, over all ranks."""
        sums = distributed.sum_numbers(self.sums, world)
        counts = distributed.sum_numbers(self.counts, world)
        return {name: total / counts[name] for name, total in sums.items() if counts[name]}


# ── loops ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class TrainingSteps:
    """Steps of training: forward, backward, and after every `accumulate` batches an update of the weights.

    The gradient of an update is that of all its items together, over batches and ranks.
    """

    def __init__(self, setting: LoopSetting, accumulate: int, length: int) -> None:
        self.setting = setting
        self.inputs = setting.inputs()
        self.train_batch = method(setting.model, "train_batch")
        self.manual = not getattr(setting.model, "automatic_optimization", True)
        self.parameters = [one for one in setting.model.parameters() if one.requires_grad]
        if not self.manual and getattr(setting.model, "optimizer", None) is None:
            raise ConfigError("There is no optimizer: optimizer.name is empty, and the model did not set one.")
        self.accumulate = accumulate
        self.length = length  # batches in an epoch
        self.weighted = accumulate > 1 or setting.world.size > 1
        self.items = 0  # in the gradients that have been summed up
        self.updates = 0
        self.means = Means()

    def begin(self) -> None:
        """A new epoch."""
        self.means = Means()
        self.items = 0
        self._zero()

    def __call__(self, engine: Engine, batch: dict[str, Any] | None) -> None:
        """One batch; None if only other ranks have one."""
        shown: dict[str, float] = {}
        if batch is not None:
            count = size_of(batch)
            shown = self.means.add(self._gradients(self.inputs(batch), count), count)
        done = (engine.state.iteration - 1) % self.length + 1
        if not self.manual and (done % self.accumulate == 0 or done == self.length):
            self._update()
        elif self.manual:
            self._count()
        self.setting.progress.advance(1, **shown)

    def _gradients(self, inputs: Any, count: int) -> dict[str, Any]:
        with ai.compute.forward:
            given = self.train_batch(inputs)
        loss = loss_of(given, self.setting.model, "train_batch")
        if self.manual:
            return dict(given)
        if not getattr(loss, "requires_grad", False):
            raise ModelError(
                f"The loss of {type(self.setting.model).__name__}.train_batch does not depend on the weights: it is "
                f"{type(loss).__name__} without a gradient. Return the computed tensor; the pipeline calls backward "
                "and the optimizer."
            )
        with ai.compute.backward:
            (loss.reshape(()) * count if self.weighted else loss.reshape(())).backward()
        self.items += count
        return {**given, "loss": loss.detach()}

    def _update(self) -> None:
        if self.weighted:
            total = distributed.sum_gradients(self.parameters, self.items, self.setting.world)
            for one in self.parameters:
                if one.grad is not None:
                    one.grad /= max(total, 1)
        with ai.compute.step:
            self.setting.model.optimizer.step()
        self._zero()
        self.items = 0
        self._count()

    def _zero(self) -> None:
        optimizer = getattr(self.setting.model, "optimizer", None)
        if optimizer is not None and not self.manual:
            optimizer.zero_grad(set_to_none=True)

    def _count(self) -> None:
        self.updates += 1
        ai.update(step=self.updates)


def evaluate(setting: LoopSetting, batches: Iterable[Any], name: str) -> dict[str, float]:
    """Run `validate_batch` or `test_batch` over all batches, without gradients; the means of its numbers."""
    inputs, function, means = setting.inputs(), method(setting.model, name), Means()

    def step(_: Engine, batch: dict[str, Any] | None) -> None:
        if batch is None:
            return
        ready = inputs(batch)
        with ai.compute.forward:
            given = function(ready)
        loss_of(given, setting.model, name)
        setting.progress.advance(1, **means.add(given, size_of(batch)))

    run(setting, batches, step)
    return means.over(setting.world)


def infer(setting: LoopSetting, batches: Iterable[Any], take: Callable[[dict[str, Any] | None, Any], None]) -> None:
    """Run `infer_batch` over all batches, without gradients; `take` gets each batch and what the model made of it.

    It gets None for a batch that only other ranks have.
    """
    inputs, function = setting.inputs(), method(setting.model, "infer_batch")

    def step(_: Engine, batch: dict[str, Any] | None) -> None:
        if batch is None:
            take(None, None)
            return
        ready = inputs(batch)
        with ai.compute.forward:
            given = function(ready)
        take(batch, given)
        setting.progress.advance(1)

    run(setting, batches, step)


def run(setting: LoopSetting, batches: Iterable[Any], step: Callable[[Engine, Any], None]) -> None:
    """One pass over all batches with the model in evaluation mode."""
    import torch

    model = setting.model
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            engine(step).run(batches, max_epochs=1)
    finally:
        model.train(was_training)
