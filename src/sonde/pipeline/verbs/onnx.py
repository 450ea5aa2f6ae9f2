"""`to_onnx`: write a trained model for onnxruntime, with any number of items in a batch, and check that it is the same."""

from __future__ import annotations

import json
import logging
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.errors import ConfigError, ExportError, MissingExtra
from sonde.pipeline.data.request import parse_request
from sonde.pipeline.export.exported import FACTS, MODEL, Exported
from sonde.pipeline.export.prepared import FILE as PREPARED, load_prepared, save_prepared
from sonde.pipeline.job import Job, verb
from sonde.pipeline.training.build import build_model
from sonde.pipeline.training.inputs import checked, prepare, to_tensors
from sonde.pipeline.training.outputs import arrays, named
from sonde.pipeline.training.seed import seeded
from sonde.pipeline.training.weights import give_weights
from sonde.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sonde.pipeline.data.provider import DataProvider

SAMPLE = 4  # items that the model is exported with, and checked on
NOISY = ("torch.onnx", "onnxscript", "onnx_ir", "torch.export")  # what they log is not for the user of a verb
BATCH = "batch"  # the name of the dimension that may have any size


@verb
def to_onnx(job: Job) -> Path | None:
    """Export; the folder with `model.onnx` and `prepare_inputs.py`."""
    if job.traced:
        raise ConfigError("to_onnx handles no data, so there is nothing to trace. Trace infer or engine instead.")
    with seeded(job.seed):
        provider = job.provider(_group(job), augment=False)
        model: Any = build_model(job.config, provider, training=False)
        file = give_weights(model, job, "onnx")
        with job.folder() as made:
            assert made is not None
            made.describe(weights=str(file))
            _export(job, model.to("cpu").eval(), provider, made.path)
            return made.path


def _group(job: Job) -> str:
    """Whose data the model is exported and checked with."""
    groups = parse_request(job.config["data_request"].as_dict())
    for name in ("infer", "test", "validate", "train"):
        if name in groups:
            return name
    raise ConfigError("to_onnx needs data to verify the model: data_request has neither infer nor train.")


def _export(job: Job, model: Any, provider: DataProvider, folder: Path) -> None:
    kind = type(model)
    count = min(SAMPLE, len(provider))
    batch = provider.collate([provider[index] for index in range(count)])
    prepared = checked(prepare(kind)(batch), kind.__name__)
    save_prepared(prepare(kind), folder / PREPARED)
    unchecked = folder / f".{MODEL}"
    try:
        _write(model, prepared, job.config["onnx"]["opset"], unchecked)
        exported = Exported(unchecked)
        for size in sorted({1, 2, count}):
            _check(model, exported, prepared, min(size, count), job.config["onnx"]["tolerance"])
        _check_prepared(folder / PREPARED, batch, prepared)
        unchecked.replace(folder / MODEL)
    finally:
        unchecked.unlink(missing_ok=True)


# ── the export ──


def _write(model: Any, prepared: Any, opset: int, path: Path) -> None:
    """Export `infer_batch` of the model."""
    torch = _torch()
    tensors = to_tensors(prepared, "cpu")
    with torch.no_grad():
        outputs = list(arrays(model.infer_batch(tensors), type(model).__name__))
    arguments = tuple(_several(one) for one in _parts(tensors) if one is not None)
    size = torch.export.Dim(BATCH)
    names = [f"input_{number}" for number in range(len(arguments))]
    with _quiet(), torch.no_grad():
        try:
            program = torch.onnx.export(
                _wrapper(model, prepared),
                arguments,
                dynamo=True,
                opset_version=opset,
                input_names=names,
                dynamic_shapes=(tuple({0: size} for _ in arguments),),
                external_data=False,
                verbose=False,
            )
        except (torch.onnx.errors.OnnxExporterError, RuntimeError, TypeError, ValueError) as error:
            raise ExportError(f"Cannot export {type(model).__name__}: {_reason(error)}") from error
    takes = _drop_unused(program, names)
    facts = {"model": type(model).__name__, "outputs": outputs, "takes": takes, "version": __version__}
    program.model.metadata_props[FACTS] = json.dumps(facts)
    program.save(str(path))


def _torch() -> Any:
    try:
        import onnxscript
        import torch
    except ImportError as error:
        raise MissingExtra.of(error.name or "onnxscript", "pipeline", "Exporting a model") from error
    del onnxscript  # torch loads it by itself, and says less clearly that it is missing
    return torch


def _wrapper(model: Any, prepared: Any) -> Any:
    """A module whose `forward` is the model's `infer_batch`, with the arrays as arguments of their own."""
    import torch

    places = [one is not None for one in _parts(prepared)]
    single = not isinstance(prepared, tuple)

    class Inference(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *given: Any) -> Any:
            rest = iter(given)
            parts = tuple(next(rest) if there else None for there in places)
            found = model.infer_batch(parts[0] if single else parts)
            return tuple(named(found).values())

    return Inference().eval()


def _parts(prepared: Any) -> tuple[Any, ...]:
    return prepared if isinstance(prepared, tuple) else (prepared,)


def _several(tensor: Any) -> Any:
    """At least two items: of one, an exporter would conclude that there is always one."""
    return tensor if len(tensor) > 1 else tensor.repeat(2, *[1] * (tensor.dim() - 1))


def _drop_unused(program: Any, names: list[str]) -> list[int]:
    """Take inputs away that the model does not use, such as labels; the places of those that are left."""
    graph = program.model.graph
    used = [one for one in graph.inputs if one.uses() or one.is_graph_output()]
    graph.inputs[:] = used
    return [names.index(one.name) for one in used]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's own messages: what fails is raised."""
    loggers = [logging.getLogger(name) for name in NOISY]
    before = [one.level for one in loggers]
    for one in loggers:
        one.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for one, level in zip(loggers, before, strict=True):
            one.setLevel(level)


def _reason(error: BaseException) -> str:
    """The innermost cause, in one line: exporters wrap it in pages of advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {' '.join(str(error).split()):.500}"


# ── the check ──


def _check(model: Any, exported: Exported, prepared: Any, size: int, tolerance: float) -> None:
    """Compare what torch and onnxruntime give for the first `size` items."""
    import torch

    parts = tuple(None if one is None else np.ascontiguousarray(one[:size]) for one in _parts(prepared))
    given = parts if isinstance(prepared, tuple) else parts[0]
    with torch.no_grad():
        expected = arrays(model.infer_batch(to_tensors(given, "cpu")), type(model).__name__)
    found = exported.run_onnx_batch(exported.create_ort_inputs(given))
    for name, right in expected.items():
        _compare(name, found[name], right, size, tolerance)


def _compare(name: str, found: np.ndarray[Any, Any], right: np.ndarray[Any, Any], size: int, tolerance: float) -> None:
    if found.shape != right.shape or found.dtype.kind != right.dtype.kind:
        raise ExportError(
            f"The exported model returns {found.dtype}{list(found.shape)} for {name!r} on {size} items, but torch "
            f"returns {right.dtype}{list(right.shape)}. The export was deleted."
        )
    if not np.allclose(found, right, rtol=tolerance, atol=tolerance, equal_nan=True):
        with np.errstate(invalid="ignore"):
            apart = np.nanmax(np.abs(found.astype(np.float64) - right.astype(np.float64)))
        raise ExportError(
            f"The exported model differs from torch: {name!r} by up to {apart:.3g} on {size} items; onnx.tolerance "
            f"is {tolerance:g}. The export was deleted."
        )


def _check_prepared(path: Path, batch: dict[str, Any], prepared: Any) -> None:
    for found, right in zip(_parts(load_prepared(path)(batch)), _parts(prepared), strict=True):
        same = found is None and right is None
        if not same and not np.array_equal(found, right, equal_nan=np.asarray(right).dtype.kind in "fc"):
            raise ExportError(
                "prepare_inputs returns something else when it runs alone. Make it depend only on the batch."
            )
