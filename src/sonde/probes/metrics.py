"""The probe of losses and metrics that training frameworks log: Hugging Face, Lightning, Keras and ignite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.events import core
from sonde.events.log import as_number
from sonde.guard import guard
from sonde.hooks.frameworks import huggingface_log, ignite_run, keras_epoch, lightning_evaluated
from sonde.store.probe import METRIC
from sonde.weak import WeakTable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sonde.config import Settings

TRAINING, EVALUATION = 0, 1  # the key of a metric
MOST = 64  # metrics of one moment
BESIDE = ("runtime", "per_second", "total_flos", "epoch")  # how logged names end that say nothing of the model

_noting = guard("recording a framework's metrics")


def install(_settings: Settings) -> Callable[[], None]:
    """Follow what frameworks log until the returned function is called."""
    undo = [
        huggingface_log.subscribe(_HuggingFace()),
        *(point.subscribe(_Lightning()) for point in lightning_evaluated),
        keras_epoch.subscribe(_Keras()),
        ignite_run.subscribe(_Ignite()),
    ]

    def leave() -> None:
        while undo:
            undo.pop()()

    return leave


def _write(framework: str, metrics: Mapping[Any, Any], key: int | None = None) -> None:
    """Record the numbers among them."""
    with _noting:
        for name, value in list(metrics.items())[:MOST]:
            number = as_number(value)
            if number is not None and not str(name).endswith(BESIDE):
                core.counter(str(name), number, METRIC + framework, key)


class _HuggingFace:
    """`Trainer.log(trainer, logs)`: of training its loss, rate and gradient norm; of an evaluation names that begin with eval."""

    def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        logs = kwargs.get("logs", args[1] if len(args) > 1 else {})
        _write("huggingface", logs)

    def after(self, _token: Any, _result: Any, _error: BaseException | None) -> None:
        pass


class _Lightning:
    """The end of a validation or a test: the trainer has all metrics that the program has logged."""

    def before(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        trainer = args[0].lightning_module.trainer
        if not trainer.sanity_checking:
            _write("lightning", trainer.callback_metrics)

    def after(self, _token: Any, _result: Any, _error: BaseException | None) -> None:
        pass


class _Keras:
    """The end of an epoch: metrics of training, and of the validation by names that begin with val."""

    def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        _write("keras", kwargs.get("logs", args[2] if len(args) > 2 else None) or {})

    def after(self, _token: Any, _result: Any, _error: BaseException | None) -> None:
        pass


class _Run(NamedTuple):
    """A run of an engine: at which step it began."""

    engine: Any
    step: int | None


class _Ignite:
    """The end of a run: that of an engine that has trained nothing is an evaluation. The second engine's metrics are `name#2`."""

    def __init__(self) -> None:
        self._numbers: WeakTable[int] = WeakTable()
        self._count = 0

    def before(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> _Run:
        return _Run(args[0], core.get_context()[0])

    def after(self, run: _Run, _result: Any, error: BaseException | None) -> None:
        if error is not None or not run.engine.state.metrics:
            return
        evaluation = core.get_context()[0] == run.step
        number = self._numbers.get(run.engine)
        if number is None:
            self._count += 1
            number = self._numbers[run.engine] = self._count
        behind = "" if number == 1 else f"#{number}"
        metrics = {f"{name}{behind}": value for name, value in run.engine.state.metrics.items()}
        _write("ignite", metrics, EVALUATION if evaluation else TRAINING)
