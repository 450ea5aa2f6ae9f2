"""Short names of events and processes, the same in every view and export."""

from __future__ import annotations


def event(cat: str, name: str) -> str:
    """`compute.forward`, `data.io.read`, `pipeline`; a name of the user's own category stands alone."""
    if cat in ("user", "", name) or name.startswith(f"{cat}."):
        return name
    return f"{cat}.{name}"


def process(role: str | None, rank: int | None, worker: int | None) -> str:
    """`main`, `rank 1`, `worker 2`, `rank 1 worker 2`, `rank 0 launcher`."""
    words = [] if rank is None else [f"rank {rank}"]
    if worker is not None:
        words.append(f"worker {worker}")
    elif role and (rank is None or role not in ("main", "trainer")):
        words.append(role)
    return " ".join(words) or "process"
