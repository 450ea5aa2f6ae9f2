"""Hyrax's `Hyrax`: a pipeline whose traced verbs return Hyrax's kind of result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde.capture.result import TraceResult as Captured
from sonde.compat.hyrax.trace import TraceResult
from sonde.pipeline.config import defaults
from sonde.pipeline.pipeline import Pipeline

if TYPE_CHECKING:
    import os

__all__ = ["Hyrax"]

CLASSES = (("data_set", "RandomDataset"), ("model", "Autoencoder"))


class Hyrax(Pipeline):
    """A config and its verbs: `h.train()`, `h.infer()`, `h.test()`, each with `trace=N`."""

    def __init__(self, config_file: str | os.PathLike[str] | None = None) -> None:
        super().__init__(config_file)
        for kind, name in CLASSES:
            table = self.config[kind][f"Hyrax{name}"]
            for key, value in defaults()[kind][name].items():
                if key not in table:
                    table[key] = value

    def _call(self, name: str, trace: int | None) -> Any:
        found = super()._call(name, trace)
        return TraceResult.of(found) if isinstance(found, Captured) else found
