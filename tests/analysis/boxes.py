"""Writes dumps of a black box by hand, as the recorder does, and marks of births: for tests of whoever reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sonde.store import probe
from sonde.store.record import MARK
from sonde.testing import START_NS, WALL_NS, BuiltProcess, BuiltRecord

MS = 1_000_000
STACKS = """Thread 0x00007f2b (most recent call first):
  File "/lib/python3.11/threading.py", line 324 in wait
  File "/lib/python3.11/queue.py", line 180 in get

Current thread 0x00007f2c (most recent call first):
  File "/home/user/train.py", line 41 in step
  File "/home/user/train.py", line 60 in <module>
"""


def certificate(**fields: Any) -> dict[str, Any]:
    """The certificate of a layer that made NaN of finite inputs; `fields` change it."""
    plain = {
        "where": "forward", "producer": True, "layer": "encoder.3.norm", "type": "LayerNorm", "after": None, "before": None,
        "op": None, "code": None, "stage": None, "kind": "nan", "count": 128, "total": 4096, "shape": [32, 128],
        "dtype": "float32", "inputs": [summary("0", 0.5, 3.4e38)], "inputs_known": True,
        "items": [{"position": 2, "index": 8412, "id": None}], "items_total": 1, "batch": probe.batch_key(0, 0, 812),
        "step": 812, "epoch": None, "evaluation": False, "scaled": False,
    }  # fmt: skip
    return plain | fields


def summary(name: str, low: float | None, high: float | None, *, finite: bool = True) -> dict[str, Any]:
    """What is written of an input."""
    numbers = {"min": low, "max": high, "mean": 1.0}
    return {"name": name, "shape": [32, 128], "dtype": "float32", **numbers, "finite": finite}


def birth(fields: Mapping[str, Any], after_ms: int = 0) -> BuiltRecord:
    """The mark of a birth."""
    when = START_NS + after_ms * MS
    return BuiltRecord(
        str(fields.get("layer") or fields.get("where")), probe.NONFINITE, kind=MARK, start=when, args=fields, step=3
    )


def batch(
    number: int, arrays: Mapping[str, np.ndarray[Any, Any]], **fields: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What dump.json says of a batch, and the arrays that lie beside it."""
    size = len(next(iter(arrays.values()))) if arrays else fields.pop("size", 0)
    plain = {
        "key": probe.batch_key(0, 0, number), "loader": 0, "round": 0, "number": number, "worker": 1, "step": number,
        "epoch": 0, "size": size, "indices": [100 * number + place for place in range(size)], "ids": None, "loss": 0.5,
        "digest": 2**63 + number, "digest_of": "all", "changed": False, "kept": "full", "values": [],
    }  # fmt: skip
    return plain | fields, dict(arrays)


def write_dump(
    run: Path,
    reason: str = "exception",
    batches: Sequence[tuple[dict[str, Any], dict[str, Any]]] = (),
    number: int = 0,
    **fields: Any,
) -> Path:
    """Write a dump into a run; `fields` change what dump.json says."""
    folder = run / "blackbox" / f"{number:03}-{reason}-testhost-1000"
    folder.mkdir(parents=True)
    (folder / "stacks.txt").write_text(STACKS)
    described = [_kept(folder, place, *one) for place, one in enumerate(batches)]
    plain = {
        "version": 1, "reason": reason, "wall_ns": WALL_NS + number * MS, "monotonic_ns": START_NS + number * MS,
        "host": "testhost", "pid": 1000, "rank": None, "world_size": None, "worker": None, "role": "main", "step": 12,
        "epoch": 0, "exception": None, "nonfinite": None, "batches": described,
        "open_spans": [{"cat": "probe", "name": "forward", "since_ns": 4 * MS, "thread": "MainThread"}],
        "stacks": "stacks.txt", "left_out": [], "limit_bytes": 64_000_000,
    }  # fmt: skip
    (folder / "dump.json").write_text(json.dumps(plain | fields))
    return folder


def _kept(folder: Path, place: int, described: dict[str, Any], arrays: dict[str, Any]) -> dict[str, Any]:
    (folder / f"batch-{place}").mkdir()
    values = []
    for number, (path, array) in enumerate(arrays.items()):
        file = f"batch-{place}/{number}.npy"
        np.save(folder / file, array)
        finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array.reshape(-1)
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (None, None)
        numbers = {"min": low, "max": high, "mean": 1.0, "std": 1.0}
        about = {"path": path, "type": "Tensor", "shape": list(array.shape), "dtype": str(array.dtype), **numbers}
        values.append(about | {"nonfinite": int(array.size - finite.size), "digest": 7, "file": file, "cut": False})
    return described | {"values": described["values"] or values}


def raised(index: int | None = 77, **item: Any) -> dict[str, Any]:
    """What dump.json says of an exception in an item."""
    about = {"index": index, "position": 1, "id": None, "worker": 0, "batch": probe.batch_key(0, 0, 4)} | item
    return {
        "type": "ValueError",
        "message": "bad sample",
        "traceback": ["train.py:60 in <module>: main()", "data.py:12 in __getitem__: raise ValueError('bad sample')"],
        "item": about,
    }


def with_marks(process: BuiltProcess, *marks: BuiltRecord) -> BuiltProcess:
    """The same process, with births."""
    numbered = [one._replace(seq=number) for number, one in enumerate(process.records, 1)]
    more = [one._replace(seq=len(numbered) + number) for number, one in enumerate(marks, 1)]
    return process._replace(records=[*numbered, *more])
