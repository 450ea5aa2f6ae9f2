"""Built runs whose trainings learn badly, one for each kind of finding."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.diagnosis.building import phases, processes, with_records

from sonde.store import probe
from sonde.store.record import COUNTER, MARK
from sonde.testing import MS, START_NS, BuiltProcess, BuiltRecord

SAMPLED = range(0, 60, 10)  # steps
MODEL = {"training": True, "changing": 0, "evaluating": 0, "compiled": False, "embedding": False}


def counted(name: str, cat: str, value: float, step: int, key: int | None = 0) -> BuiltRecord:
    """A number of a step."""
    return BuiltRecord(
        name, cat, kind=COUNTER, start=START_NS + step * 10 * MS + 1, key=key, value=float(value), step=step
    )


def model(step: int = 0, **facts: object) -> BuiltRecord:
    """What is known of a model."""
    start = START_NS + step * 10 * MS + 1
    return BuiltRecord("Net", probe.LEARNING_MODEL, kind=MARK, start=start, args={**MODEL, **facts}, step=step)


def layer(name: str, place: int = 0, *, parameters: int = 100, **facts: object) -> BuiltRecord:
    """What is known of a layer."""
    known = {"place": place, "parameters": parameters, "frozen": False, "gradient": True, "optimized": True}
    args = {**known, "sharded": False, **facts}
    return BuiltRecord(f"Net/{name}", probe.LEARNING_LAYER, kind=MARK, start=START_NS + 1, args=args, step=0)


def gradients(name: str, norm: float = 0.1, weight: float = 1.0, update: float = 0.001) -> list[BuiltRecord]:
    """A layer in each sampled step."""
    numbers = {"norm": norm, "weight": weight, "update": update, "zeros": 0.0, "nonfinite": 0.0}
    return [
        counted(f"Net/{name}", probe.GRADIENT + what, value, step)
        for step in SAMPLED
        for what, value in numbers.items()
    ]


def activations(name: str, **numbers: float) -> list[BuiltRecord]:
    """The results of a layer in each sampled step."""
    known = {"mean": 0.0, "std": 1.0, "zeros": 0.0, **numbers}
    return [
        counted(f"Net/{name}", probe.ACTIVATION + what, value, step, 1)
        for step in SAMPLED
        for what, value in known.items()
    ]


def learned(*records: Iterable[BuiltRecord] | BuiltRecord, built: BuiltProcess | None = None) -> list[BuiltProcess]:
    """A training with these records too."""
    (process,) = processes() if built is None else [built]
    flat = [one for some in records for one in ([some] if isinstance(some, BuiltRecord) else some)]
    return [with_records(process, *sorted(flat, key=lambda one: one.start))]


def plain() -> list[BuiltRecord]:
    """A model with two layers, which learn."""
    return [model(), layer("first"), layer("last", 1), *gradients("first"), *gradients("last")]


def rate_zero() -> list[BuiltProcess]:
    """The learning rate is next to zero from step 20 on."""
    return learned(counted(probe.RATE, probe.PROBE, 0.1, 0), counted(probe.RATE, probe.PROBE, 1e-9, 20))


def carried() -> list[BuiltProcess]:
    """Gradients are never set to zero."""
    return learned(model(), [counted("carried", probe.LEARNING, 1.0, step) for step in SAMPLED])


def changed() -> list[BuiltProcess]:
    """Weights change after each update."""
    compared = [counted("compared", probe.LEARNING, 2, step) for step in SAMPLED]
    return learned(model(), compared, [counted("Net/first", probe.CHANGED, 0.1, step) for step in SAMPLED])


def sorted_classes() -> list[BuiltProcess]:
    """Each batch has one class."""
    found = []
    for step in SAMPLED:
        numbers = {"distinct": 1, "size": 16, "low": step // 10, "high": step // 10}
        found += [counted("1", probe.FIELD + what, value, step, None) for what, value in numbers.items()]
    return learned(found)


def evaluated() -> list[BuiltProcess]:
    """Each forward of an evaluation is in training mode."""
    (process,) = processes(evaluate_every=10)
    bits = probe.FORWARD_TRAINING | probe.FORWARD_LEARNED
    records = [one._replace(key=bits) if one.name == probe.FORWARD and one.key == 0 else one for one in process.records]
    return learned(model(changing=1), built=process._replace(records=records))


def overfitted() -> list[BuiltProcess]:
    """The evaluation loss rises from step 20 on, and that of training falls."""
    (process,) = processes(loss=lambda step: 2 - step / 40)
    values = {0: 2.0, 10: 1.7, 20: 1.5, 30: 1.7, 40: 1.9, 50: 2.2}
    return learned([counted("val_loss", probe.LOG, value, step, None) for step, value in values.items()], built=process)


def exploding() -> list[BuiltProcess]:
    """Gradients are a hundred times as large as the weights."""
    return learned(model(), layer("first"), gradients("first", norm=100.0))


def vanishing() -> list[BuiltProcess]:
    """Each layer gets a hundredth of the gradient of the one after it."""
    found = [record for place in range(6) for record in gradients(str(place), norm=100.0 ** (place - 6))]
    return learned(model(), [layer(str(place), place) for place in range(6)], found)


def recompiled() -> list[BuiltProcess]:
    """Four slow steps, in each of which a function is compiled again."""
    (process,) = processes(phases=lambda rank, step: phases(forward=900 if step % 12 == 11 else 3))
    args = {"function": "forward", "file": "train.py", "line": 7, "reason": "0/0: size mismatch at index 0"}
    updates = [one for one in process.records if one.name == probe.UPDATE and one.step and one.step % 12 == 11]
    marks = [
        BuiltRecord("recompile", probe.RECOMPILE, kind=MARK, start=one.start - MS, args=args, step=one.step)
        for one in updates
    ]
    return [with_records(process, *marks)]


RUNS: dict[str, Callable[[], list[BuiltProcess]]] = {
    "RECOMPILING": recompiled,
    "LEARNING_RATE": rate_zero,
    "GRADIENT_ACCUMULATION": carried,
    "WEIGHTS_CHANGED": changed,
    "ONE_CLASS": sorted_classes,
    "TRAINED_IN_EVALUATION_MODE": lambda: learned(model(training=False, changing=2, evaluating=2)),
    "DEAD_RELU": lambda: learned(plain(), activations("relu", dead=1.0, zeros=1.0), activations("last")),
    "SATURATED": lambda: learned(plain(), activations("tanh", saturated=0.9), activations("last")),
    "LAYER_NOT_LEARNING": lambda: learned(plain(), layer("head", 2, optimized=False)),
    "VANISHING_GRADIENTS": vanishing,
    "EXPLODING_GRADIENTS": exploding,
    "UPDATE_RATIO": lambda: learned(model(), layer("first"), gradients("first", update=0.5)),
    "EVALUATED_IN_TRAINING_MODE": evaluated,
    "OVERFITTING": overfitted,
    "LOSS_SPIKE": lambda: processes(steps=300, loss=lambda step: 50.0 if step == 150 else 1 + step % 7 / 10),
    "LOSS_NOT_DECREASING": lambda: processes(steps=600, loss=lambda step: 2.3 + step % 7 / 100),
}
