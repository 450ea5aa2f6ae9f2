"""The runs that the browser looks at: one that went wrong with pictures and traces of its items, one with ranks, a killed one, a hostile one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from tests.analysis.boxes import batch, birth, certificate, with_marks, write_dump
from tests.diagnosis.lessons import SAMPLED, activations, counted, learned, plain
from tests.views.runs import EVIL, ranks, with_slow_item

from sonde.capture.result import TraceCall, TraceResult
from sonde.store import probe
from sonde.store.record import MARK
from sonde.testing import MS, BuiltRecord, Straggler, build_run, build_training, synthetic_run, training_processes
from sonde.values.note import Item
from sonde.values.snapshot import freeze

BAD_STEP = 30
BAD_ITEM = 122  # of batch 30, whose items are 120 to 123
PIXEL = (5, 6)  # where its picture is NaN
STEPS = 40


def build_all(folder: Path) -> Path:
    """A folder of runs, each for what a page can meet."""
    add_traces(with_nan(folder / "nan"))
    with_slow_item(folder / "slow")
    ranks(folder / "ranks")
    build_training(folder / "killed", steps=30, workers=1, killed=True)
    add_traces(with_nan(folder / hostile_name(), EVIL), EVIL)
    build_run(folder / "bare")
    with_learning(folder / "learned")
    synthetic_run(folder / "hosts", ranks=4, hosts=2, steps=90, restarts=1, repeated=7, stragglers=[Straggler(3)])
    return folder


def with_learning(path: Path) -> Path:
    """A training whose layers, inputs and stacks were sampled, and that logs a metric."""
    metrics = [counted("val_accuracy", probe.LOG, step / 100, step) for step in range(5, 60, 10)]
    fields = [counted("image", probe.FIELD + "mean", step / 10, step, probe.batch_key(0, 0, step)) for step in SAMPLED]
    return build_run(path, learned(plain(), activations("first", dead=0.3), metrics, fields, sampled_stacks()))


def sampled_stacks() -> list[BuiltRecord]:
    """What `--sample` writes: a thread, two lines of it, and how long each was seen."""

    def frame(node: int, caller: int, function: str) -> BuiltRecord:
        facts = {"caller": caller, "function": function, "file": "/home/user/train.py", "line": 10 * node, "own": True}
        return BuiltRecord(probe.SAMPLE_FRAME, probe.SAMPLE, MARK, key=node, args=facts)

    thread = BuiltRecord(probe.SAMPLE_THREAD, probe.SAMPLE, MARK, key=1, args={"tid": 1000, "name": "MainThread"})
    seen = [
        counted(probe.SAMPLE_STACK, probe.SAMPLE, (2 + node) * MS, step, 1 << probe.SAMPLE_THREAD_BITS | node)
        for step in range(60)
        for node in (1, 2)
    ]
    return [thread, frame(1, 0, "train"), frame(2, 1, "<script>decode"), *seen]


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


def add_traces(run: Path, name: str = "image") -> Path:
    """Two traces of the batch: in the second, one pixel of the bad item is NaN."""
    folder = next(one for one in sorted(run.iterdir()) if one.is_dir() and one.name != "blackbox") / "values"
    folder.mkdir(exist_ok=True)
    good = np.nan_to_num(pictures())
    traced(good, name).save(folder / "trace-a.sonde")
    traced(pictures(), name).save(folder / "trace-b.sonde")
    return run


def traced(images: np.ndarray[tuple[int, ...], np.dtype[np.float32]], name: str) -> TraceResult:
    """A trace of one batch: each item from the dataset, all of them collated, and what the model made of them."""
    items = [Item(place, 4 * BAD_STEP + place) for place in range(len(images))]
    about: dict[str, Any] = {"step": BAD_STEP, "epoch": 0, "batch": BAD_STEP, "duration_ns": MS}
    calls = [
        TraceCall(
            "Shapes__getitem__",
            stage_name="dataset_getter",
            inputs=[freeze(item.index, name="index")],
            output=freeze({name: images[item.position], "label": item.position}, name="item"),
            items=[item],
            seq=item.position,
            worker=0,
            **about,
        )
        for item in items
    ]
    batch = freeze({name: images, "label": np.arange(len(images))}, name="batch")
    whole: dict[str, Any] = about | {"items": items}
    calls.append(TraceCall("default_collate", stage_name="collate", output=batch, seq=len(items), **whole))
    output = freeze(images.mean((1, 2, 3)), name="output")
    forward = {"inputs": [freeze(images, name="x")], "output": output, "seq": len(items) + 1}
    calls.append(TraceCall("Net__forward", stage_name="evaluation", **forward, **whole))
    return TraceResult(calls=calls)
