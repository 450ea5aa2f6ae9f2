"""Which job a launcher is part of, if the same command runs on every node: a Slurm step, or torchrun with several nodes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from sonde import ranks
from sonde.launch.command import name_of
from sonde.ranks import ParallelJob
from sonde.store.claim import Member
from sonde.store.folder import host

SINGLE = ("", "1", "1:1")  # nodes
TORCHRUN = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
ACCELERATE = ("accelerate", "accelerate-launch", "accelerate.commands.launch")
VALUES = (
    "nnodes", "rdzv_id", "rdzv_endpoint", "master_addr", "master_port", "num_machines", "main_process_ip",
    "main_process_port",
)  # fmt: skip


class Meeting(NamedTuple):
    """A job of several launchers, and who this one is in it."""

    job: ParallelJob
    member: Member


def meeting(command: Sequence[str]) -> Meeting | None:
    """The job that this launcher shares with others; None if it is alone, as far as is known."""
    task = ranks.slurm_task()
    job = ranks.slurm_job(name_of(command)) if task is not None else None
    if job is not None:
        return Meeting(job, Member(f"launcher-{task}", ranks.attempt()))
    job = _of_nodes(command)
    return None if job is None else Meeting(job, Member(f"launcher-{host()}", reused=True))


def _of_nodes(command: Sequence[str]) -> ParallelJob | None:
    """The job that the options of torchrun or accelerate name, if it has several nodes."""
    program = _program(command)
    if program not in TORCHRUN + ACCELERATE:
        return None
    given = _options(command)
    if given.get("nnodes" if program in TORCHRUN else "num_machines", "") in SINGLE:
        return None
    id = given.get("rdzv_id", "none")
    if id != "none":
        return ParallelJob(f"torchelastic {id} {given.get('rdzv_endpoint', '')}", None, id)
    address = given.get("master_addr") or given.get("main_process_ip") or given.get("rdzv_endpoint")
    if not address:
        return None
    port = given.get("master_port") or given.get("main_process_port") or ""
    return ParallelJob(f"torchelastic {address} {port}", None, None)


def _program(command: Sequence[str]) -> str:
    """The program, or the module that Python runs."""
    if "-m" in command[:-1]:
        return command[list(command).index("-m") + 1]
    return next((name for name in map(os.path.basename, command[:2]) if name in TORCHRUN + ACCELERATE), "")


def _options(command: Sequence[str]) -> dict[str, str]:
    """The options that say where the nodes meet, up to the script: `--rdzv-id x`, `--rdzv_id=x`."""
    found: dict[str, str] = {}
    words = list(command)
    for place, word in enumerate(words):
        if word.endswith(".py"):
            break
        name, sign, value = word.lstrip("-").partition("=")
        name = name.replace("-", "_")
        if word.startswith("-") and name in VALUES:
            found[name] = value if sign else words[place + 1] if place + 1 < len(words) else ""
    return found
