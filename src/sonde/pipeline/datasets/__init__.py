"""Datasets: sources of the fields of single items. `Dataset` is the interface; the others are built in."""

from __future__ import annotations

from sonde.pipeline.datasets.dataset import Dataset

__all__ = ["Dataset"]
