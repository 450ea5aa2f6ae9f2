"""Builds what trains: the model of the config, and its optimizer, criterion and scheduler unless it has set its own."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from sonde.errors import ConfigError, DataError, ModelError
from sonde.pipeline.registry import find_model, import_path
from sonde.pipeline.training.checkpoint import load_weights
from sonde.pipeline.training.inputs import prepare, prepared

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from sonde.pipeline.config import Config
    from sonde.pipeline.data.provider import DataProvider

__all__ = ["build_model", "load_weights", "model_class", "sample_of"]

SAMPLE = 2  # items in the batch that a model is built with: one could be taken for no batch

log = logging.getLogger("sonde.pipeline")


def model_class(config: Config) -> type:
    """The class that `model.name` names."""
    name = config["model"]["name"]
    if not name:
        raise ConfigError('No model chosen. Set config["model"]["name"], for example to "Autoencoder".')
    return find_model(name)


def sample_of(kind: type, provider: DataProvider) -> Any:
    """A batch of the first items as the model gets it, before it is made a tensor."""
    count = min(SAMPLE, len(provider))
    if not count:
        raise DataError(f"The group {provider.group!r} has no items. Check its data_request.")
    batch = provider.collate([provider.resolve_data(index) for index in range(count)])
    return prepared(prepare(kind), batch, kind.__name__)


def build_model(config: Config, provider: DataProvider, *, training: bool = True) -> torch.nn.Module:
    """The model of the config, built for the provider's data, with optimizer, criterion and scheduler."""
    from torch import nn

    kind = model_class(config)
    if not issubclass(kind, nn.Module):
        raise ModelError(f"{kind.__name__} is not a model: it must be a subclass of torch.nn.Module.")
    model: Any = kind(config, sample_of(kind, provider))
    _missing(model, "criterion", config, lambda: ())
    if training:
        _missing(model, "optimizer", config, lambda: ([one for one in model.parameters() if one.requires_grad],))
        _missing(model, "scheduler", config, lambda: (model.optimizer,))
    made: nn.Module = model
    return made


def _missing(model: Any, part: str, config: Config, first: Callable[[], tuple[Any, ...]]) -> None:
    """Give the model an optimizer, criterion or scheduler as the config says, if it has none."""
    if getattr(model, part, None) is not None:
        log.info("%s has set its own %s.", type(model).__name__, part)
        return
    path = config[part]["name"]
    if not path:
        setattr(model, part, None)
        return
    arguments = config[path].as_dict() if path in config else {}
    made = import_path(path, f"{part}.name")
    try:
        setattr(model, part, made(*first(), **arguments))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"Cannot create the {part} {path} with the arguments {arguments}: {error}") from error
    log.info("%s of %s from config: %s with arguments %s.", part, type(model).__name__, path, arguments or "by default")
