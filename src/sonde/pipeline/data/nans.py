"""Handling of NaN in a batch: an error, a warning, or a replacement; by field, and never in place."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from sonde.errors import ConfigError, DataError, nearest
from sonde.pipeline.data.request import ID, MATCHED

MODES = ("error", "warn", "zero", "quantile", "false")

log = logging.getLogger("sonde.pipeline")


class Nans:
    """The modes of a configuration, applied to batches."""

    def __init__(self, table: Mapping[str, Any], known: list[str] | None = None) -> None:
        """`table` is [data] of a configuration. `known` are the fields that it may name; None: any."""
        self.mode = _mode("data.nan_mode", table["nan_mode"])
        self.fields = {key: _mode(f"data.nan_fields.{key}", mode) for key, mode in table["nan_fields"].items()}
        for key in self.fields:
            if known is not None and key not in known:
                raise ConfigError(f"data.nan_fields names {key!r}, which is not a field. {nearest(key, known)}")
        self.quantile = float(table["nan_quantile"])
        if not 0 <= self.quantile <= 1:
            raise ConfigError(f"data.nan_quantile is {self.quantile}. Give a number from 0 to 1.")
        self.warned: dict[str, int] = {}  # field -> how many items with NaN were let through

    def mode_of(self, friendly: str, field: str) -> str:
        """How NaN in this field are treated."""
        return self.fields.get(f"{friendly}.{field}") or self.fields.get(field) or self.mode

    def handle(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The batch itself if there is nothing to do, else a new one that shares what is unchanged."""
        changed: dict[str, Any] = {}
        for friendly, part in batch.items():
            if not isinstance(part, dict):
                continue
            for field, values in part.items():
                if has_nan(values):
                    again = self._treat(batch, friendly, field, values)
                    if again is not values:
                        changed.setdefault(friendly, dict(part))[field] = again
        return {**batch, **changed} if changed else batch

    def _treat(self, batch: dict[str, Any], friendly: str, field: str, values: Any) -> Any:
        mode = self.mode_of(friendly, field)
        if mode == "false":
            return values
        missed = _missed(batch, friendly, values)
        bad = _rows_with_nan(values, missed)
        if mode == "zero":
            return np.where(np.isnan(values), values.dtype.type(0), values)
        if mode == "quantile":
            return self._filled(batch, f"{friendly}.{field}", values, bad, missed)
        if bad.any():
            said = self._words(batch, f"{friendly}.{field}", bad)
            if mode == "error":
                raise DataError(
                    f"{said}. Repair the data, or set data.nan_mode (or data.nan_fields for one field) to warn, zero or "
                    "quantile."
                )
            self._warn(f"{friendly}.{field}", said, int(bad.sum()))
        return values

    def _words(self, batch: dict[str, Any], name: str, bad: Any) -> str:
        ids = np.asarray(batch[ID])[bad] if ID in batch and len(batch[ID]) == len(bad) else []
        first = f", first in item {str(ids[0])!r}" if len(ids) else ""
        return f"{name} has NaN in {int(bad.sum())} of {len(bad)} items of a batch{first}"

    def _warn(self, name: str, said: str, count: int) -> None:
        before = self.warned.get(name, 0)
        self.warned[name] = before + count
        if not before:
            log.warning("%s. This message appears once; `provider.nans.warned` counts the items.", said)

    def _filled(self, batch: dict[str, Any], name: str, values: Any, bad: Any, missed: Any) -> Any:
        made = values.reshape(len(bad), -1).copy()
        made[missed] = np.where(np.isnan(made[missed]), 0, made[missed])
        rows = made[bad]
        finite = np.where(np.isfinite(rows), rows, np.nan)
        hopeless = np.isnan(finite).all(axis=1) | (values.dtype.kind == "c")
        if hopeless.any():
            where = bad.copy()
            where[bad] = hopeless
            raise DataError(
                f"{self._words(batch, name, where)}, and no other values to take a quantile of. Set "
                f"data.nan_fields.{name!r} to zero or warn."
            )
        if len(rows):
            fill = np.nanquantile(finite.astype(np.float64), self.quantile, axis=1, keepdims=True)
            made[bad] = np.where(np.isnan(rows), fill.astype(values.dtype), rows)
        return made.reshape(values.shape)


def has_nan(values: Any) -> bool:
    """Is there a NaN in this array? One pass without a temporary array: the minimum of what has a NaN is NaN."""
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fc" or not values.size:
        return False
    return bool(np.isnan(values.min()))


def _missed(batch: dict[str, Any], friendly: str, values: Any) -> Any:
    """The rows for which a join found nothing."""
    mask = batch.get(friendly + MATCHED)
    if mask is None or values.ndim == 0 or len(mask) != len(values):
        return np.zeros(len(values) if values.ndim else 1, dtype=bool)
    return ~mask


def _rows_with_nan(values: Any, missed: Any) -> Any:
    return np.isnan(values).reshape(len(missed), -1).any(axis=1) & ~missed


def _mode(key: str, given: Any) -> str:
    word = "false" if given is False else given
    if word not in MODES:
        raise ConfigError(f"{key} is {given!r}. {nearest(str(given), list(MODES))}")
    return str(word)
