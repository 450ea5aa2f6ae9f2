"""An exported model: `model.onnx` and its `prepare_inputs.py`, run with onnxruntime alone. torch is never imported here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.errors import ExportError, MissingExtra
from sonde.pipeline.export.prepared import FILE as PREPARED, load_prepared

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MODEL = "model.onnx"
FACTS = "sonde"  # the key of the model file's metadata under which we say what it is


class Exported:
    """A model that was exported: what goes in, what comes out, and how to run it on one batch."""

    def __init__(self, path: Path) -> None:
        """`path` is the model file."""
        self.path = path
        self._session, self._failures = _session(path)
        facts = _facts(self._session)
        self.model: str = facts.get("model", path.stem)
        self.inputs: list[str] = [one.name for one in self._session.get_inputs()]
        self.outputs: list[str] = facts.get("outputs", [one.name for one in self._session.get_outputs()])
        self._takes: list[int] = facts.get("takes", list(range(len(self.inputs))))

    def prepared(self) -> Callable[[dict[str, Any]], Any]:
        """Its `prepare_inputs`."""
        return load_prepared(self.path.parent / PREPARED)

    def create_ort_inputs(self, prepared_batch: Any) -> dict[str, np.ndarray[Any, Any]]:
        """What `prepare_inputs` gave, by the names of the model's inputs."""
        parts = prepared_batch if isinstance(prepared_batch, tuple) else (prepared_batch,)
        given = [np.asarray(part) for part in parts if part is not None]
        if self._takes and max(self._takes) >= len(given):
            raise ExportError(
                f"prepare_inputs returned {len(given)} arrays, but {self.path} was exported with more. Export the "
                "model again."
            )
        return {name: given[place] for name, place in zip(self.inputs, self._takes, strict=True)}

    def run_onnx_batch(self, ort_inputs: dict[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        """The outputs for one batch, by name."""
        try:
            found = self._session.run(None, ort_inputs)
        except self._failures as error:
            shapes = ", ".join(f"{name} {array.dtype}{list(array.shape)}" for name, array in ort_inputs.items())
            raise ExportError(f"Cannot run {self.path} on {shapes}: {error}") from error
        return dict(zip(self.outputs, found, strict=True))


def _session(path: Path) -> tuple[Any, tuple[type[Exception], ...]]:
    """The session, and what it raises."""
    try:
        import onnxruntime
        from onnxruntime.capi import onnxruntime_pybind11_state as state
    except ImportError as error:
        raise MissingExtra.of("onnxruntime", "pipeline", "Running an exported model") from error
    known = ("Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NoModel", "NoSuchFile", "NotImplemented")
    failures = (ValueError, *(getattr(state, name) for name in (*known, "RuntimeException")))
    try:
        return onnxruntime.InferenceSession(str(path), providers=onnxruntime.get_available_providers()), failures
    except failures as error:
        raise ExportError(f"Cannot load {path}: {error}. Export the model again: to_onnx.") from error


def _facts(session: Any) -> dict[str, Any]:
    """What the export wrote down about itself; nothing for a model that somebody else has exported."""
    try:
        facts = json.loads(session.get_modelmeta().custom_metadata_map.get(FACTS, "{}"))
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}
