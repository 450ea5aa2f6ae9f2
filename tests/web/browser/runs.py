"""The runs that the browser looks at: one that went wrong with pictures of its items, one with ranks, a killed one, a hostile one."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from tests.analysis.boxes import batch, birth, certificate, with_marks, write_dump
from tests.views.runs import EVIL, ranks, with_slow_item

from sonde.store import probe
from sonde.testing import MS, build_run, build_training, training_processes

BAD_STEP = 30
BAD_ITEM = 122  # of batch 30, whose items are 120 to 123
PIXEL = (5, 6)  # where its picture is NaN
STEPS = 40


def build_all(folder: Path) -> Path:
    """A folder of runs, each for what a page can meet."""
    with_nan(folder / "nan")
    with_slow_item(folder / "slow")
    ranks(folder / "ranks")
    build_training(folder / "killed", steps=30, workers=1, killed=True)
    with_nan(folder / hostile_name(), EVIL)
    build_run(folder / "bare")
    return folder


def hostile_name() -> str:
    """The name of a folder that would be a program, a path and a query elsewhere."""
    return "a%2f..%2f <img src=x onerror=document.title='owned'>?token=x#y"


def with_nan(path: Path, name: str = "encoder.3.norm") -> Path:
    """A training that ends in NaN: the watch names the item, and the black box has the pictures of its batch."""
    told = certificate(
        where="data", stage="dataset", layer=None, type=None, inputs=[], producer=True,
        items=[{"position": BAD_ITEM - 4 * BAD_STEP, "index": BAD_ITEM, "id": None}], batch=probe.batch_key(0, 0, BAD_STEP),
        step=BAD_STEP, code=name,
    )  # fmt: skip
    phases = {"input_wait": 3 * MS, "forward": 4 * MS, "backward": 5 * MS, "optimizer": MS, "residual": MS}
    trainer, *workers = training_processes(
        steps=STEPS,
        workers=2,
        phases=phases,
        layers=[name, "head"],
        loss=lambda step: math.nan if step >= BAD_STEP else 2 / (step + 1),
        rss=lambda _, step: 10**8 + step * 10**5,
        item_ns=lambda _, index: MS // 2 + index * 1000,
    )
    run = build_run(path, [with_marks(trainer, birth(told, after_ms=BAD_STEP * 14)), *workers], name=name)
    kept = batch(BAD_STEP, {"image": pictures(), name: np.linspace(0, 1, 400).reshape(4, 100), "label": np.arange(4)},
                 indices=list(range(4 * BAD_STEP, 4 * BAD_STEP + 4)), loss="NaN")  # fmt: skip
    write_dump(run, "nonfinite", [kept], nonfinite=told, rank=0)
    return run


def pictures() -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Four pictures; the third has one bad pixel."""
    found = np.linspace(0, 1, 4 * 3 * 16 * 16, dtype=np.float32).reshape(4, 3, 16, 16)
    found[BAD_ITEM - 4 * BAD_STEP, 1, PIXEL[0], PIXEL[1]] = np.nan
    return found
