"""What a run was made with, as flat names and plain values: what may be the cause when two runs differ."""

from __future__ import annotations

import json
import os
import shlex
from typing import TYPE_CHECKING, Any

from sonde.store import probe

if TYPE_CHECKING:
    from sonde.analysis.run import Run

LOADER = ("workers", "batch_size", "dataset", "length", "items", "prefetch", "pin_memory", "persistent", "shuffle")


def setup_of(run: Run) -> dict[str, Any]:
    """All that is known; what is not is left out."""
    found = {**_meta(run), **_processes(run), **_loaders(run)}
    return {name: value for name, value in found.items() if value is not None}


def _meta(run: Run) -> dict[str, Any]:
    meta = run.meta
    command, git, settings = meta.get("command"), meta.get("git"), meta.get("settings")
    words = [str(word) for word in command] if isinstance(command, list) else []
    python = int("python" in os.path.basename(words[0])) if words else 0
    found: dict[str, Any] = {
        "command": shlex.join(words[python:]) or None,
        "interpreter": words[0] if python else None,
        "cwd": meta.get("cwd"),
        "python": meta.get("python"),
        "platform": meta.get("platform"),
        "sonde": meta.get("sonde"),
        "git.commit": git.get("commit") if isinstance(git, dict) else None,
    }
    if isinstance(settings, dict):
        found |= {
            f"sonde.{name}": value for name, value in settings.items() if name not in ("run", "dir", "name", "enabled")
        }
    return found


def _processes(run: Run) -> dict[str, Any]:
    sizes = [row["world_size"] for row in run.rows if row["world_size"]]
    hosts = sorted({str(row["host"]) for row in run.rows})
    rows = run.sql(
        "SELECT name, max(value) FROM events WHERE kind = 'counter' AND cat = 'system' AND name IN ('cores', 'torch.threads') "
        "GROUP BY 1"
    ).fetchall()
    counters = {name: int(value) for name, value in rows if value is not None}
    return {
        "hosts": ", ".join(hosts) or None,
        "world_size": max(sizes, default=None),
        "cores": counters.get("cores"),
        "threads": counters.get("torch.threads"),
    }


def _loaders(run: Run) -> dict[str, Any]:
    """The arguments of each loader, those that look the same once: `loader.workers`, `loader 2.workers`."""
    rows = run.sql(
        f"SELECT args FROM events WHERE kind = 'span' AND cat = '{probe.PROBE}' AND name = '{probe.ITER}' AND args IS NOT NULL "
        "GROUP BY args ORDER BY min(start_ns) LIMIT 8"
    ).fetchall()
    found: dict[str, Any] = {}
    for number, (text,) in enumerate(rows, 1):
        args = json.loads(text)
        which = "loader" if number == 1 else f"loader {number}"
        found |= {f"{which}.{name}": args[name] for name in LOADER if args.get(name) is not None}
    return found
