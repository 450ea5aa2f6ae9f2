"""`train`: the model learns from the group `train`, and is measured with the group `validate` if there is one."""

from __future__ import annotations

import logging
import math
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from sonde.ai.tree import ai
from sonde.capture.tape import phase
from sonde.errors import ConfigError
from sonde.pipeline.data.loading import Batches, batches
from sonde.pipeline.job import Job, verb
from sonde.pipeline.tracing import watch_forward
from sonde.pipeline.training import batchloop, checkpoint, distributed, seed
from sonde.pipeline.training.build import build_model
from sonde.pipeline.training.checkpoint import BEST, LATEST, WEIGHTS, Progressed
from sonde.pipeline.training.ignite import engine, library
from sonde.pipeline.training.inputs import device_of

if TYPE_CHECKING:
    from pathlib import Path

    from ignite.engine import Engine

    from sonde.pipeline.folder import RunFolder

log = logging.getLogger("sonde.pipeline")


@verb
def train(job: Job) -> Path | None:
    """Train the model; the folder of the run, which holds its weights and checkpoints. None in a traced run."""
    with ai.pipeline.train, ExitStack() as stack:
        device = device_of(job.config["train"]["device"])
        world = stack.enter_context(job.together(device))
        stack.enter_context(seed.seeded(job.seed + world.rank))
        return _Training(job, device, world).run()


class _Training:
    """One run of `train`."""

    def __init__(self, job: Job, device: Any, world: distributed.World) -> None:
        config = job.config
        self.job, self.config, self.world = job, config, world
        self.epochs = job.number("train", "epochs")
        self.validate_every, self.checkpoint_every = (
            job.number("train", f"{it}_every") for it in ("validate", "checkpoint")
        )
        provider = job.provider("train")
        with seed.seeded(job.seed):  # all ranks, and a resumed run, begin with the same weights
            model = build_model(config, provider)
        self._start_from(model)
        model = model.to(device)
        distributed.same_weights(model, world)
        self.setting = batchloop.LoopSetting(model, device, job.progress, world)
        self.train = batches(job, provider, world, training=True)
        self.validate: Batches | None = None
        if "validate" in config["data_request"]:
            self.validate = batches(job, job.provider("validate"), world)
            batchloop.method(model, "validate_batch")
        if not len(self.train):
            raise ConfigError("data_loader.drop_last leaves no batch to train with. Use a smaller batch_size.")
        self.steps = batchloop.TrainingSteps(self.setting, self.job.number("train", "accumulate"), len(self.train))
        self.done = Progressed()
        self.folder: RunFolder | None = None
        self.history: list[dict[str, float]] = []
        self.open = ExitStack()  # what ends with an epoch, or with an exception in it

    def run(self) -> Path | None:
        """Train, from the beginning or from a checkpoint."""
        self._resume()
        watch_forward(self.setting.model)
        self.job.begin()
        with self.job.folder(self.world) as self.folder:
            self._epochs()
            if self.folder is not None:
                checkpoint.save_weights(self.folder.path / WEIGHTS, self.setting.model)
                self.folder.describe(epochs=self.done.epoch, metrics=self.history[-1] if self.history else {})
        path = None if self.folder is None else self.folder.path
        shared: Path | None = distributed.gathered(path, self.world)[0]
        return shared

    def _start_from(self, model: Any) -> None:
        """Give the model the weights that training is to start from, if the config names any."""
        wanted = self.config["train"]["model_weights_file"]
        if not wanted:
            return
        if self.config["train"]["resume"]:
            raise ConfigError("train has both resume and model_weights_file. Keep one: resume loads its own weights.")
        self.job.say(f"Training starts from the weights of {checkpoint.load_weights(model, wanted)}.")

    def _resume(self) -> None:
        wanted = self.config["train"]["resume"]
        if not wanted or self.job.traced:
            return
        path = checkpoint.checkpoint_file(wanted, self.config["general"]["results_dir"])
        self.done = checkpoint.resume(path, self.setting.model, self.world.rank)
        if self.done.epoch >= self.epochs:
            raise ConfigError(
                f"train.epochs is {self.epochs}, but {str(path)!r} has already done {self.done.epoch}. Set more epochs."
            )
        self.job.say(f"Training resumes from {path}, after epoch {self.done.epoch}.")

    def _epochs(self) -> None:
        trainer = engine(self.steps)
        self._follow(trainer)
        state = {"epoch": self.done.epoch, "max_epochs": self.epochs, "epoch_length": len(self.train)}
        trainer.load_state_dict(state)
        self.steps.updates = self.done.epoch * math.ceil(len(self.train) / self.steps.accumulate)
        self.setting.model.train()
        with self.open, phase(None if self.validate is None else "train"):
            trainer.run(self.train)

    def _follow(self, trainer: Engine) -> None:
        events = library().engine.Events
        trainer.add_event_handler(events.EPOCH_STARTED, self._begin)
        trainer.add_event_handler(events.EPOCH_COMPLETED, self._end)

    def _begin(self, trainer: Engine) -> None:
        number = trainer.state.epoch - 1
        ai.update(epoch=number, step=self.steps.updates)
        self.open.enter_context(ai.pipeline.epoch)
        self.train.begin(number)
        self.steps.begin()
        self.open.callback(self.job.progress.stop)
        self.job.progress.start(len(self.train), f"epoch {trainer.state.epoch}/{trainer.state.max_epochs}")

    def _end(self, trainer: Engine) -> None:
        distributed.same_buffers(self.setting.model, self.world)
        numbers = self.steps.means.over(self.world)
        measured = self._validated(trainer)
        numbers |= {f"validate_{name}": value for name, value in measured.items()}
        self.history.append(numbers)
        self._schedule(numbers)
        self._keep(trainer, numbers, measured)
        self.open.close()
        words = ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())
        self.job.say(f"Epoch {trainer.state.epoch} of {trainer.state.max_epochs}: {words}")
        if not math.isfinite(numbers["loss"]):
            log.warning(
                "The loss has been %s since epoch %d: the model no longer learns.", numbers["loss"], trainer.state.epoch
            )

    def _validated(self, trainer: Engine) -> dict[str, float]:
        last = trainer.state.epoch == trainer.state.max_epochs
        if self.validate is None or (trainer.state.epoch % self.validate_every and not last):
            return {}
        self.job.progress.stop()
        self.job.progress.start(len(self.validate), "validate")
        with ai.pipeline.evaluate, phase("validate"):
            return batchloop.evaluate(self.setting, self.validate, "validate_batch")

    def _schedule(self, numbers: dict[str, float]) -> None:
        scheduler = getattr(self.setting.model, "scheduler", None)
        if scheduler is None:
            return
        if type(scheduler).__name__ == "ReduceLROnPlateau":
            scheduler.step(numbers.get("validate_loss", numbers["loss"]))
        else:
            scheduler.step()

    def _keep(self, trainer: Engine, numbers: dict[str, float], measured: dict[str, float]) -> None:
        """Save checkpoints: the latest, and the best if this epoch was that."""
        epoch = trainer.state.epoch
        value = self._deciding(numbers, measured)
        better = value is not None and _better(value, self.done.best, self.config["train"]["best_mode"])
        best, best_epoch = (value, epoch) if better else (self.done.best, self.done.best_epoch)
        self.done = Progressed(epoch, best, best_epoch)
        if self.job.traced:
            return
        states = distributed.gathered(seed.state(), self.world)
        if self.folder is None:
            return
        if epoch % self.checkpoint_every == 0 or epoch == trainer.state.max_epochs:
            checkpoint.save(self.folder.path / LATEST, self.setting.model, self.done, states)
        if better:
            checkpoint.save(self.folder.path / BEST, self.setting.model, self.done, states)
        self.folder.describe(epochs=epoch, metrics=numbers)

    def _deciding(self, numbers: dict[str, float], measured: dict[str, float]) -> float | None:
        """The number by which the best epoch is chosen; None in an epoch that was not validated."""
        name = self.config["train"]["best_metric"]
        if self.validate is not None:
            numbers = measured
            if not measured:
                return None
        if name not in numbers:
            raise ConfigError(
                f"train.best_metric is {name!r}, which the model does not return. It returns: {', '.join(numbers)}."
            )
        return numbers[name]


def _better(value: float, best: float | None, mode: str) -> bool:
    if not math.isfinite(value):
        return False
    if best is None:
        return True
    return value > best if mode == "max" else value < best
