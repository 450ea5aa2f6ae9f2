"""The rank of this process and the job it is part of: as torchrun, Lightning or Slurm say it, or torch."""

from __future__ import annotations

import os
from typing import NamedTuple

from sonde.environment import is_set, number, script_name, variable
from sonde.system import start_ticks

SLURM_RESTART = 1000  # torchrun restarts less often within one start of Slurm


class Ranks(NamedTuple):
    """The place of this process in a distributed job; None is not known."""

    rank: int | None
    local_rank: int | None
    world_size: int | None


class ParallelJob(NamedTuple):
    """A job of several processes. The texts may hold any character.

    `key`: its ranks share it, and no other job has it. `series`: all attempts share it, where `key` differs; another job may have it too.
    `id`: what people call the job; None: nothing that would say the same on all hosts.
    """

    key: str
    series: str | None
    id: str | None


class _Learned:
    """What torch has told of this process, or of the one that it was forked from."""

    ranks: Ranks | None = None


def current() -> Ranks:
    """Rank, local rank and world size: as they were learned, else as torchrun, Lightning or Slurm give them."""
    if _Learned.ranks is not None:
        return _Learned.ranks
    if number("RANK") is not None:
        return Ranks(number("RANK"), number("LOCAL_RANK"), number("WORLD_SIZE"))
    if _of_lightning():
        return Ranks(number("LOCAL_RANK"), number("LOCAL_RANK"), number("WORLD_SIZE"))
    return Ranks(number("SLURM_PROCID"), number("SLURM_LOCALID"), number("SLURM_NTASKS"))


def learn(rank: int, world_size: int) -> bool:
    """Torch says which rank this process is. Is that new? It is not taken for a part of a larger job that is known.

    Where variables of the environment say something else, they were inherited, or count nodes.
    """
    known = current()
    if known.rank is not None and world_size < (known.world_size or 0):
        return False
    learned = Ranks(rank, known.local_rank if known.rank == rank else _local_rank(), world_size)
    new = learned != _Learned.ranks
    _Learned.ranks = learned
    return new


def forget() -> None:
    """Know only what the environment says."""
    _Learned.ranks = None


def _local_rank() -> int | None:
    """As Lightning gives it; beside a rank that is not the one of this process it is not either."""
    return None if variable("RANK") else number("LOCAL_RANK")


def _of_lightning() -> bool:
    """Is this a rank that Lightning has started on the first node, or the one that has started the others?

    It gives them no global rank. On other nodes that depends on how many there are on each.
    """
    local, size = number("LOCAL_RANK"), number("WORLD_SIZE")
    return not variable("RANK") and number("NODE_RANK") == 0 and local is not None and local < (size or 0)


def attempt() -> int:
    """How often the job was started again before: by Slurm (each counts as a thousand), and by torchrun."""
    by_slurm = number("SLURM_RESTART_COUNT") if variable("SLURM_JOB_ID") else None
    return SLURM_RESTART * (by_slurm or 0) + (number("TORCHELASTIC_RESTART_COUNT") or 0)


def job() -> ParallelJob | None:
    """The job of this process; None outside of jobs that can be distinguished from others."""
    if is_set("TORCHELASTIC_RUN_ID"):
        return _elastic_job()
    if _of_lightning():
        return ParallelJob(_lightning_job(), None, None)
    return slurm_job(script_name())


def slurm_job(program: str) -> ParallelJob | None:
    """The job step that Slurm started this process for. A step may run several programs, one after the other."""
    job, step = variable("SLURM_JOB_ID"), variable("SLURM_STEP_ID")
    return ParallelJob(f"slurm {job} {step} {program}", None, f"slurm-{job}-{step}-{program}") if job and step else None


def slurm_task() -> int | None:
    """The number of this process among the tasks of a job step; None: there is only one, or none."""
    several = variable("SLURM_STEP_ID") and (number("SLURM_NTASKS") or 1) > 1
    return number("SLURM_PROCID") if several else None


def is_first_on_host() -> bool:
    """Is this the first task of a job step on its host?"""
    return slurm_task() is None or number("SLURM_LOCALID") in (None, 0)


def _elastic_job() -> ParallelJob:
    name = variable("TORCHELASTIC_RUN_ID")
    if name in ("", "none"):  # torchrun's default, the same for every job: its own process distinguishes them
        parent = os.getppid()
        return ParallelJob(f"torchelastic {parent}-{start_ticks(parent)}", None, None)
    # The port is chosen anew for each rendezvous, so it distinguishes jobs that reuse an id.
    words = ("TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT")
    return ParallelJob(" ".join(["torchelastic", name, *map(variable, words)]), f"torchelastic {name}", name)


def _lightning_job() -> str:
    launcher = os.getppid() if number("LOCAL_RANK") else os.getpid()  # rank 0 has started the others
    return f"lightning {variable('MASTER_ADDR')} {variable('MASTER_PORT')} {launcher}-{start_ticks(launcher)}"
