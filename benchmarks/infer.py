"""What `infer` costs over a loop written by hand, what Lance takes of it, and what the extra weighs."""

from __future__ import annotations

import importlib.metadata
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.importing import ENVIRONMENT

ITEMS = 60_000
BANK = 512  # different images
BATCH = 100
SHAPE = (1, 32, 32)
PEER_PACKAGES = 244  # of the peer, see the reference


class Images:
    """Random images in memory: the getter costs next to nothing, so that what is around it shows."""

    made: Any = None

    def __init__(self, config: Any = None, data_location: str | None = None) -> None:
        import numpy as np

        if Images.made is None:
            Images.made = np.random.default_rng(1).random((BANK, *SHAPE), dtype=np.float32)

    def __len__(self) -> int:
        return ITEMS

    def get_image(self, index: int) -> Any:
        return self.made[index % BANK]

    def get_object_id(self, index: int) -> str:
        return str(index)


def measure(rounds: int) -> dict[str, Any]:
    """All of it. Both loops take turns, because the machine is not equally fast at all times."""
    return {**_throughput(max(3, rounds // 2)), **_importing(max(3, rounds // 3)), **_weight()}


# ── throughput ──


def _throughput(rounds: int) -> dict[str, Any]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            return _compared(Path(folder), rounds)
    finally:
        torch.set_num_threads(threads)


def _compared(folder: Path, rounds: int) -> dict[str, Any]:
    from sonde.pipeline.results import results

    pipeline = _pipeline(folder)
    run = pipeline.train()
    hand = _by_hand(run / "weights.pt", folder)
    pipeline.infer()  # loads what is loaded only once
    hand()
    spent = [0.0]
    plain = results.ResultWriter.write, results.ResultWriter.close
    ours, theirs, shares = [], [], []
    for _ in range(rounds):
        theirs.append(_timed(hand))
        ours.append(_timed(pipeline.infer))
        spent[0] = 0.0
        results.ResultWriter.write, results.ResultWriter.close = (_counted(one, spent) for one in plain)  # type: ignore[method-assign]
        try:
            whole = _timed(pipeline.infer)
        finally:
            results.ResultWriter.write, results.ResultWriter.close = plain  # type: ignore[method-assign]
        shares.append(spent[0] / whole[0])
    # The best rounds of each: what else runs on the machine only ever adds.
    wall, hand_wall = (min(one[0] for one in one_side) for one_side in (ours, theirs))
    cpu, hand_cpu = (min(one[1] for one in one_side) for one_side in (ours, theirs))
    return {
        "items": ITEMS,
        "infer_items_per_s": ITEMS / wall,
        "hand_items_per_s": ITEMS / hand_wall,
        "infer_over_hand": wall / hand_wall,
        "infer_over_hand_cpu": cpu / hand_cpu,
        "lance_share": median(shares),
    }


def _timed(function: Callable[[], Any]) -> tuple[float, float]:
    """Wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - wall, time.process_time() - cpu


def _counted(function: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    """The same, with the time that its caller waits for it summed up."""

    def counted(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            spent[0] += time.perf_counter() - start

    return counted


def _pipeline(folder: Path) -> Any:
    from sonde.pipeline import Pipeline

    made = Pipeline()
    made.config["general"]["results_dir"] = str(folder / "results")
    made.config["model"]["name"] = "Autoencoder"
    made.config["train"]["epochs"] = 1
    made.config["data_loader"]["batch_size"] = BATCH
    source = {"dataset_class": "benchmarks.infer.Images", "fields": ["image"], "primary_id_field": "object_id"}
    made.set_config("data_request", {"train": {"data": {**source, "split_fraction": 0.01}}, "infer": {"data": source}})
    return made


def _by_hand(weights: Path, folder: Path) -> Callable[[], None]:
    """What one would write for this model: a torch dataset, a loader, a loop, a file with the ids and the vectors."""
    import numpy as np
    import torch
    from torch.utils.data import DataLoader, Dataset

    from sonde.pipeline import Config
    from sonde.pipeline.models.autoencoder import Autoencoder

    class Items(Dataset[Any]):
        def __init__(self) -> None:
            self.images = Images()

        def __len__(self) -> int:
            return len(self.images)

        def __getitem__(self, index: int) -> Any:
            return self.images.get_image(index), self.images.get_object_id(index)

    def collate(items: list[Any]) -> Any:
        return np.stack([one[0] for one in items]), [one[1] for one in items]

    def run() -> None:
        model = Autoencoder(Config(), np.zeros((2, *SHAPE), np.float32))
        model.load_state_dict(torch.load(weights, weights_only=True))
        model.eval()
        ids, vectors = [], []
        with torch.inference_mode():
            for images, names in DataLoader(Items(), batch_size=BATCH, collate_fn=collate):
                vectors.append(model(torch.from_numpy(images)).numpy())
                ids += names
        np.savez(folder / "by-hand.npz", ids=np.array(ids), data=np.concatenate(vectors))

    return run


# ── imports and weight ──


def _importing(rounds: int) -> dict[str, Any]:
    """CPU of importing the pipeline with torch, over that of importing torch alone."""
    alone, together = [], []
    for _ in range(rounds + 1):
        alone.append(_cpu_s("import torch"))
        together.append(_cpu_s("import torch, sonde.pipeline"))
    ratios = [b / a for a, b in zip(alone[1:], together[1:], strict=True)]
    return {"import_torch_s": median(alone[1:]), "pipeline_over_torch": median(ratios)}


def _cpu_s(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, env=ENVIRONMENT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _weight() -> dict[str, Any]:
    """How many packages `sonde-ml[pipeline]` brings, and their size on disk; torch alone for comparison."""
    needed = sorted(_closure("sonde", {"pipeline"}))
    sizes = {name: _size(name) for name in needed}
    return {
        "packages": len(needed),
        "peer_packages": PEER_PACKAGES,
        "installed_mb": sum(sizes.values()) / 1e6,
        "torch_mb": sizes.get("torch", 0) / 1e6,
    }


def _closure(name: str, extras: set[str]) -> set[str]:
    """The package and all that it requires here, as far as it is installed."""
    from packaging.requirements import Requirement

    found: dict[str, set[str]] = {}
    waiting = [(name, extras)]
    while waiting:
        one, wanted = waiting.pop()
        key = re.sub(r"[-_.]+", "-", one).lower()
        if key in found and wanted <= found[key]:
            continue
        found[key] = found.get(key, set()) | wanted
        try:
            required = importlib.metadata.requires(key) or []
        except importlib.metadata.PackageNotFoundError:
            del found[key]
            continue
        for text in required:
            need = Requirement(text)
            if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in (found[key] or {""})):
                waiting.append((need.name, set(need.extras)))
    return set(found)


def _size(name: str) -> int:
    total = 0
    for file in importlib.metadata.files(name) or []:
        try:
            total += os.stat(str(file.locate())).st_size
        except OSError:  # a compiled file that was never made
            continue
    return total
