"""`sonde deepen`: record some steps of a running training in depth, then continue as before."""

from __future__ import annotations

import json
import math
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from sonde import units
from sonde.analysis.live.stacks import named, running
from sonde.cli.options.choose import choose, directory, one_run, runs_dir, waiting
from sonde.errors import SondeError
from sonde.store import request as requests
from sonde.store.alive import RUNNING, UNKNOWN, state_of
from sonde.store.file import read_small
from sonde.store.folder import PROCESS_FILE, host
from sonde.store.process import Info, read_info
from sonde.store.reading.reader import read_newest
from sonde.store.request import DeepRequest

STEPS = 20
WAIT_SECONDS = 60.0
LOOK_SECONDS = 0.1
ALIVE_SECONDS = 1.0  # between two looks at whether the processes are still there
AHEAD_SECONDS = 2.0  # all ranks have seen the request by then
USUAL = (requests.LAYERS, requests.STACKS)
PASSIVE = ("launcher", "worker", "child")
MOST_BYTES = 1 << 20

_Trainer = tuple[Path, Info]


@click.command(
    epilog="""\b
Example: sonde deepen                                   layers and stacks of the next 20 steps
Example: sonde deepen train-3f2a --steps 5 --values 4 --learning
Example: sonde deepen --profile --steps 3"""
)
@one_run
@directory
@click.option(
    "--steps",
    type=click.IntRange(1, requests.MOST_STEPS),
    default=STEPS,
    show_default=True,
    metavar="N",
    help="How many steps.",
)
@click.option("--layers", is_flag=True, help="Record each layer.")
@click.option(
    "--values", type=click.IntRange(1, requests.MOST_VALUES), metavar="N", help="Save the last N batches at the end."
)
@click.option("--learning", is_flag=True, help="Record gradients, updates, activations and batch fields in each step.")
@click.option("--stacks", is_flag=True, help="Sample the stacks of all threads.")
@click.option("--profile", is_flag=True, help="Record with torch.profiler.")
@waiting(WAIT_SECONDS, "How long to wait for the steps; 0.1 returns immediately.")
@click.pass_context
def command(
    context: click.Context,
    /,
    run: str | None,
    dir: str | None,
    steps: int,
    values: int | None,
    wait: float,
    **chosen: bool,
) -> None:
    """Record some steps of a running training in depth, then continue as before.

    Works for every run that `sonde run` or sonde.init() started. All ranks record the same steps. Without options: layers
    and stacks. The run keeps what was recorded and when; `sonde report` shows it.
    """
    path = choose(run, runs_dir(dir), remote=False)
    parts = tuple(part for part in requests.PARTS if chosen.get(part) or (part == requests.VALUES and values)) or USUAL
    found = trainers(path)
    request = DeepRequest(os.urandom(4).hex(), steps, parts, values or 0, first_step(found))
    requests.ask_deep(path, request)
    answers = _wait(found, request.id, wait)
    done = [one for one in found if _is_done(answers[one[0]])]
    for trainer in found:
        click.echo(f"{named(trainer[1])}: {_said(trainer, answers[trainer[0]], wait)}", err=trainer not in done)
    if any(answers.values()):
        click.echo(f"Show it: sonde report {path.name}")
    context.exit(0 if len(done) == len(found) else 1)


def trainers(path: Path) -> list[_Trainer]:
    """The processes that can answer. Raises SondeError if there is none, or if steps are recorded deep now."""
    found = training(path)
    for one in found:
        answer = _answer(one[0])
        if answer.get("state") == requests.RECORDING:
            raise SondeError(f"{path.name} already records steps in depth ({_steps(answer)}). Try again afterwards.")
    return found


def training(path: Path) -> list[_Trainer]:
    """The processes that train, on all ranks. Raises SondeError if not all have begun, or the run has ended."""
    running(path)  # raises if the run has ended
    found: list[_Trainer] = []
    for file in sorted(path.glob(f"*/{PROCESS_FILE}")):
        with suppress(SondeError, OSError):
            info = read_info(file.parent, [])
            if info.role not in PASSIVE and info.end is None and info in running(path):
                found.append((file.parent, info))
    begun = [one for one in found if _step(one) is not None or one[1].host != host()]
    if not begun:
        raise SondeError(f"{path.name} is not training: no process has begun a step. Try again once it trains.")
    ranks = max((info.world_size or 1 for _, info in begun), default=1)
    if len(begun) < ranks:
        raise SondeError(
            f"{path.name} is not training on all ranks: {len(begun)} of {ranks} have begun a step. Try again in a moment."
        )
    return begun


def first_step(found: list[_Trainer]) -> int | None:
    """The step at which all ranks begin: one that none has reached when all have seen the request. One process begins at once."""
    if len(found) < 2:
        return None
    before = [_step(one) or 0 for one in found]
    begun = time.monotonic()
    time.sleep(1.0)
    after = [_step(one) or 0 for one in found]
    rate = max(max(after) - max(before), 0) / (time.monotonic() - begun)
    return max(after) + math.ceil(rate * AHEAD_SECONDS) + 2


def _step(one: _Trainer) -> int | None:
    """The step that a process is at, from the header of its records; None: it does not train, or nobody can tell."""
    with suppress(SondeError, OSError):
        header = read_newest(*one, []).header
        return None if header is None else header.step
    return None


def _wait(trainers: list[_Trainer], id: str, seconds: float) -> dict[Path, dict[str, Any]]:
    """What each has answered, when all are done or have ended, or the time is over."""
    until, look = time.monotonic() + seconds, 0.0
    while True:
        answers = _answers(trainers, id)
        left = [one for one in trainers if not _is_done(answers[one[0]])]
        now = time.monotonic()
        if not left or now > until:
            return answers
        if now > look:
            if all(_has_ended(one) for one in left):
                return _answers(trainers, id)  # one may have been done just before it ended
            look = now + ALIVE_SECONDS
        time.sleep(LOOK_SECONDS)


def _answers(trainers: list[_Trainer], id: str) -> dict[Path, dict[str, Any]]:
    """What each has answered to this request; empty: nothing yet."""
    found = {folder: _answer(folder) for folder, _ in trainers}
    return {folder: one if one.get("id") == id else {} for folder, one in found.items()}


def _is_done(answer: dict[str, Any]) -> bool:
    return answer.get("state") == requests.DONE


def _has_ended(one: _Trainer) -> bool:
    """Whether its process is gone."""
    with suppress(SondeError, OSError):
        return state_of(read_info(one[0], [])) not in (RUNNING, UNKNOWN)
    return False


def _answer(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_small(folder / PROCESS_FILE, MOST_BYTES)).get(requests.ANSWER)
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _said(trainer: _Trainer, answer: dict[str, Any], seconds: float) -> str:
    parts = ", ".join(map(str, answer.get("parts") or ()))
    if _is_done(answer):
        refused = answer.get("refused")
        on = f"; already on: {', '.join(map(str, refused))}" if isinstance(refused, dict) and refused else ""
        return f"{_steps(answer)}: {parts or 'nothing new'}{on}"
    if not _has_ended(trainer):
        return f"not done within {units.duration(int(seconds * 1e9))}; the steps may still be recorded"
    if parts:
        return f"steps {answer['first']} until its end: {parts}; it ended before {answer['steps']} steps were recorded"
    return "it ended before the steps began"


def _steps(answer: dict[str, Any]) -> str:
    first, last, steps = (answer.get(name) for name in ("first", "last", "steps"))
    if not isinstance(first, int) or not isinstance(steps, int):
        return "the next steps"
    return f"steps {first} to {last if isinstance(last, int) else first + steps - 1}"
