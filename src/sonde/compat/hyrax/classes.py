"""Hyrax's built-in classes, under its names: registered, so that a config can name them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde.pipeline.datasets.dataset import Dataset
from sonde.pipeline.datasets.random import RandomDataset
from sonde.pipeline.models.autoencoder import Autoencoder
from sonde.pipeline.registry import register_dataset, register_model

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HyraxAutoencoder", "HyraxDataset", "HyraxRandomDataset", "hyrax_model"]

hyrax_model = register_model


class HyraxDataset(Dataset):
    """Your own dataset: `dataset_class` can name every class that derives from it."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        register_dataset(cls)


@register_dataset
class HyraxRandomDataset(RandomDataset):
    """`RandomDataset`, with the settings of [data_set.HyraxRandomDataset]."""


@register_model
class HyraxAutoencoder(Autoencoder):
    """`Autoencoder`, with the settings of [model.HyraxAutoencoder]."""

    def __init__(self, config: Mapping[str, Any], sample: Any) -> None:
        tables = config["model"]
        super().__init__({"model": {"Autoencoder": {**tables["Autoencoder"], **tables["HyraxAutoencoder"]}}}, sample)
