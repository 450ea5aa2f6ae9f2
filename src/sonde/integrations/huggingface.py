"""For transformers: a `Trainer` and a callback that say where the training is, and record the layers of its model.

    trainer = SondeTrainer(model=model, args=args, train_dataset=data, sonde_kwargs={"leaf_only": True})
    trainer = Trainer(model=model, args=args, train_dataset=data, callbacks=[SondeCallback()])

A step is an update of the optimizer, with all its micro-batches.
"""

# ruff: noqa: ARG002  what these methods take is the framework's business

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sonde.errors import MissingExtra
from sonde.integrations.progress import TrainerProgress

try:
    from transformers import Trainer, TrainerCallback
except ImportError as missing:
    raise MissingExtra.of("transformers", "huggingface", "sonde.integrations.huggingface") from missing


__all__ = ["SondeCallback", "SondeTrainer"]


class SondeCallback(TrainerCallback):  # type: ignore[misc]  # transformers is read without its types
    """Starts the recording with the training, and says which step and epoch it is at.

    `sonde_kwargs`: arguments of `sonde.trace_model_instance` for the model, whose layers are then recorded; None: they are
    only in deep mode.
    """

    def __init__(self, sonde_kwargs: Mapping[str, Any] | None = None) -> None:
        self._progress = TrainerProgress(sonde_kwargs)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Training begins, perhaps from a checkpoint."""
        self._progress.begins(state.global_step)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """An epoch begins; that it is a fraction is due to rounding."""
        self._progress.epoch(int((state.epoch or 0) + 1e-3))

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """A step begins."""
        if model is not None:
            self._progress.model(model)


class SondeTrainer(Trainer):  # type: ignore[misc]  # transformers is read without its types
    """A Trainer that is recorded: where it is, what is evaluation, and, with `sonde_kwargs`, the layers of its model.

    `sonde_enabled=False` makes it an ordinary one. `sonde_kwargs` are arguments of `sonde.trace_model_instance`, which is called
    in the first step with the model as it was wrapped by then, and again if that is another object.
    """

    def __init__(
        self, *args: Any, sonde_enabled: bool = True, sonde_kwargs: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.sonde_enabled = sonde_enabled
        self.sonde_kwargs = sonde_kwargs
        self._sonde = TrainerProgress(sonde_kwargs)
        if sonde_enabled:
            self.add_callback(SondeCallback())

    def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """One micro-batch."""
        if self.sonde_enabled:
            self._sonde.model(model)
        return super().training_step(model, inputs, *args, **kwargs)

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """An evaluation or a prediction."""
        if not self.sonde_enabled:
            return super().evaluation_loop(*args, **kwargs)
        self._sonde.evaluates()
        try:
            result = super().evaluation_loop(*args, **kwargs)
        except BaseException as error:
            self._sonde.evaluated(error)
            raise
        self._sonde.evaluated()
        return result
