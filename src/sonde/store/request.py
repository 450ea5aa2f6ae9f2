"""Requests to the processes of a run, and their answers: small JSON files in the run folder, which both sides read as hostile input.

`deepen.json` asks for steps that are recorded deep (`sonde deepen`). A process that trains looks for it now and then, at the end of a
step; its answer is `deepened` in its process.json. `stop.json` asks it to stop: `sonde.should_stop()` says so.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from sonde.store.file import read_small
from sonde.store.folder import opened, write_json

DEEPEN_FILE = "deepen.json"
STOP_FILE = "stop.json"
ANSWER = "deepened"  # in process.json
MOST_BYTES = 4096
LAYERS, VALUES, LEARNING, STACKS, PROFILE = PARTS = ("layers", "values", "learning", "stacks", "profile")
MOST_STEPS = 100_000
MOST_VALUES = 64  # batches
RECORDING, DONE = "recording", "done"  # states of an answer


class DeepRequest(NamedTuple):
    """Steps to record deep: which `parts`, how many `steps`, from `first` on (None: the next one), and `why`."""

    id: str
    steps: int
    parts: tuple[str, ...]
    values: int = 0  # batches that the black box is to keep and write
    first: int | None = None
    why: str = "sonde deepen"


def ask_deep(run: Path, request: DeepRequest) -> None:
    """Put the request there, in the place of an older one."""
    with opened(str(run)) as folder:
        write_json(folder, DEEPEN_FILE, request._asdict())


def asked_deep(run: str) -> DeepRequest | None:
    """The request that is there; None if there is none, or no sense in it."""
    try:
        found = json.loads(read_small(Path(run) / DEEPEN_FILE, MOST_BYTES))
        request = DeepRequest(**{**found, "parts": tuple(found["parts"])})
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return request if _is_sound(request) else None


def seen(run: str) -> tuple[int, int] | None:
    """How to know whether the request is another one than before; None: there is none."""
    try:
        found = os.stat(os.path.join(run, DEEPEN_FILE), follow_symlinks=False)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _is_sound(one: DeepRequest) -> bool:
    return (
        _is_number(one.steps, 1, MOST_STEPS)
        and _is_number(one.values, 0, MOST_VALUES)
        and (one.first is None or _is_number(one.first, 0, 2**32))
        and bool(one.parts)
        and all(part in PARTS for part in one.parts)
        and all(isinstance(text, str) for text in (one.id, one.why))
    )


def _is_number(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


# ── stopping ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class StopRequest(NamedTuple):
    """The program is to stop at the end of step `at` (None: as soon as it asks), and `why`."""

    at: int | None
    why: str


def ask_stop(run: Path, request: StopRequest) -> None:
    """Put the request there."""
    with opened(str(run)) as folder:
        write_json(folder, STOP_FILE, request._asdict())


def asked_stop(run: str) -> StopRequest | None:
    """The request that is there; None if there is none, or no sense in it."""
    try:
        found = StopRequest(**json.loads(read_small(Path(run) / STOP_FILE, MOST_BYTES)))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    return found if found.at is None or _is_number(found.at, 0, 2**32) else None
