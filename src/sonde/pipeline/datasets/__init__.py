"""Datasets: what gives the fields of single items. `Dataset` says what one looks like; the others are built in."""

from __future__ import annotations

from sonde.pipeline.datasets.dataset import Dataset

__all__ = ["Dataset"]
