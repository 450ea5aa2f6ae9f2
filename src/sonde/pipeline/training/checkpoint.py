"""Checkpoints: everything a training run needs to continue as if uninterrupted, in one file that replaces the last.

    latest.pt     after each epoch          best.pt     of the epoch with the best number
    weights.pt    the weights alone, at the end of the run

They are read without running code that stands in them.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.ai.tree import ai
from sonde.errors import CheckpointError
from sonde.pipeline import folder
from sonde.pipeline.training import seed

if TYPE_CHECKING:
    import torch

LATEST, BEST, WEIGHTS = "latest.pt", "best.pt", "weights.pt"
FORMAT = "sonde-checkpoint-1"
_UNREADABLE = (RuntimeError, EOFError, ValueError, KeyError, TypeError, AttributeError, OSError, pickle.UnpicklingError)


class Progressed(NamedTuple):
    """How far a training run has come."""

    epoch: int = 0  # epochs that are finished
    best: float | None = None  # the best number so far
    best_epoch: int | None = None


def save(path: Path, model: Any, done: Progressed, others: list[dict[str, Any]] | None = None) -> None:
    """Write a checkpoint, whole or not at all. `others`: the random states of all ranks."""
    content = {
        "format": FORMAT,
        "class": type(model).__qualname__,
        "model": model.state_dict(),
        "optimizer": _state(model, "optimizer"),
        "scheduler": _state(model, "scheduler"),
        "chance": others or [seed.state()],
        **done._asdict(),
    }
    with ai.checkpoint.capture:
        _write(path, content)


def save_weights(path: Path, model: Any) -> None:
    """Write the weights alone."""
    with ai.checkpoint.capture:
        _write(path, model.state_dict())


def _state(model: Any, name: str) -> Any:
    part: Any = getattr(model, name, None)
    return None if part is None else part.state_dict()


def _write(path: Path, content: Any) -> None:
    import torch

    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(fresh, "wb") as stream:
            torch.save(content, stream)
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def resume(path: Path, model: Any, rank: int = 0) -> Progressed:
    """Bring model, optimizer, scheduler and random numbers to where a checkpoint left them."""
    content = _read(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(
            f"{str(path)!r} holds only weights, not a checkpoint of a training run. Set train.resume to a run folder "
            f"or its {LATEST}; to start from weights, set train.model_weights_file."
        )
    try:
        _load_state(model, content["model"], path)
        for name in ("optimizer", "scheduler"):
            if content[name] is not None and getattr(model, name, None) is not None:
                getattr(model, name).load_state_dict(content[name])
        states = content["chance"]
        seed.restore(states[rank] if rank < len(states) else states[0])
        return Progressed(content["epoch"], content["best"], content["best_epoch"])
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise CheckpointError(
            f"The checkpoint {str(path)!r} does not match this run ({type(error).__name__}: {error}). Its optimizer "
            "and scheduler must be those of the config."
        ) from error


def load_weights(model: torch.nn.Module, path: str | Path) -> Path:
    """Give a model the weights of a run folder, a checkpoint or a file with weights; which file it was."""
    file = weights_file(path)
    with ai.checkpoint.restart:
        content = _read(file)
        weights = content["model"] if isinstance(content, dict) and content.get("format") == FORMAT else content
        _load_state(model, weights, file)
    return file


def weights_file(path: str | Path) -> Path:
    """The file with the weights: `path` itself, or the one in this run folder."""
    given = Path(path)
    return given / WEIGHTS if given.is_dir() else given


def checkpoint_file(wanted: str, results_dir: str | Path) -> Path:
    """The checkpoint that `train.resume` names: a file, that of a run folder, or that of the newest run."""
    if wanted != "latest":
        given = Path(wanted)
        return given / LATEST if given.is_dir() else given
    ended = (folder.COMPLETED, folder.FAILED, folder.INTERRUPTED, folder.RUNNING)
    found = [(record.get("started_ns", 0), path) for path, record in folder.runs(results_dir, "train", ended)]
    found = [(started, path) for started, path in found if (path / LATEST).is_file()]
    if not found:
        raise CheckpointError(
            f'train.resume is "latest", but no training run in {str(results_dir)!r} has a checkpoint. Leave it empty '
            "to start a new one."
        )
    return max(found)[1] / LATEST


def _read(path: Path) -> Any:
    import torch

    if not path.is_file():
        raise CheckpointError(f"No file {str(path)!r} with weights or a checkpoint.")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except _UNREADABLE as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(
            f"Cannot read {str(path)!r}: it is damaged or not a checkpoint ({why:.200}). Use another one, such as "
            f"{BEST} or one of an earlier run."
        ) from error


def _load_state(model: torch.nn.Module, weights: Any, path: Path) -> None:
    try:
        model.load_state_dict(weights)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"The weights in {str(path)!r} do not match the current configuration of {type(model).__name__}: "
            f"{' '.join(str(error).split()):.500}"
        ) from error
