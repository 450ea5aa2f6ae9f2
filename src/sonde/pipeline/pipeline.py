"""`Pipeline`: data and a model, declared in a config, and the verbs that work on them.

p = sonde.Pipeline("my.toml")
p.config["model"]["name"] = "Autoencoder"
p.set_config("data_request", {...})
p.train()
p.infer()
p.train(trace=2)        what happens to 2 items on their way, with nothing left behind
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde.pipeline.config import Config
from sonde.pipeline.job import verb
from sonde.pipeline.progress import SILENT
from sonde.pipeline.verbs import VERBS

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from sonde.pipeline.progress import Progress


class Pipeline:
    """A config and its verbs. Every verb works on its own copy of the config."""

    def __init__(self, config: str | os.PathLike[str] | Config | None = None, *, progress: Progress = SILENT) -> None:
        """`config` is a TOML file, or a Config, which is copied; without it the defaults hold."""
        self.config = config.copy() if isinstance(config, Config) else Config.load(config)
        self.progress = progress

    def set_config(self, key: str, value: Any) -> None:
        """Set one key, such as "train.epochs", or a whole table, such as "data_request"."""
        self.config.set(key, value)

    def train(self, *, trace: int | None = None) -> Any:
        """Train the model and return the run folder."""
        return self._call("train", trace)

    def infer(self, *, trace: int | None = None) -> Any:
        """Run the model on the group `infer` and return the results folder."""
        return self._call("infer", trace)

    def test(self, *, trace: int | None = None) -> Any:
        """Test the model on the group `test` and return its metrics."""
        return self._call("test", trace)

    def to_onnx(self, *, trace: int | None = None) -> Any:
        """Export the model to ONNX and return the folder of model.onnx."""
        return self._call("to-onnx", trace)

    def engine(self, *, trace: int | None = None) -> Any:
        """Run the exported model on the group `infer`, without torch, and return the results folder."""
        return self._call("engine", trace)

    def run(self, body: Callable[..., Any], *, trace: int | None = None, **arguments: Any) -> Any:
        """Run your own verb: a function that takes a Job and these arguments."""
        return verb(body)(self.config, trace=trace, progress=self.progress, **arguments)

    def _call(self, name: str, trace: int | None) -> Any:
        return VERBS[name](self.config, trace=trace, progress=self.progress)

    def __repr__(self) -> str:
        return f"<Pipeline of {self.config['model']['name'] or 'no model'}>"
