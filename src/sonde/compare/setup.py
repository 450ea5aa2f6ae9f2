"""The setup of a run, as flat names and plain values: possible causes when two runs differ."""

from __future__ import annotations

import json
import os
import shlex
from typing import TYPE_CHECKING, Any

from sonde.store import probe

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.analysis.run import Run

NONE = "none"
LOADER = (
    "workers", "batch_size", "dataset", "items", "length", "prefetch", "pin_memory", "persistent", "sampler", "drop_last",
)  # fmt: skip


def setup_of(run: Run) -> dict[str, Any]:
    """All that is known; what is not is left out."""
    found = {**_meta(run), **_marks(run), **_processes(run), **_loaders(run)}
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


def _marks(run: Run) -> dict[str, Any]:
    """What the marks of the category `setup` say; of several ranks, the first that wrote one."""
    rows = run.sql(
        f"SELECT name, key, arg_min(args, start_ns) FROM events WHERE kind = 'mark' AND cat = '{probe.SETUP}' AND args IS NOT NULL "
        "GROUP BY name, key ORDER BY min(start_ns)"
    ).fetchall()
    found: dict[str, Any] = {}
    for name, key, text in rows:
        facts = json.loads(text)
        if isinstance(facts, dict):
            found |= _MARKS.get(name, _nothing)(facts, key or 0)
    return found


def environment(facts: dict[str, Any], _key: int = 0, /) -> dict[str, Any]:
    """What a process computed with, by flat names."""
    torch = dict(facts.get("torch") or {})
    devices = torch.pop("devices", None)
    return {
        "cpu": facts.get("cpu"),
        "devices": ", ".join(map(str, devices)) if devices else None,
        **{f"version.{name}": value for name, value in (facts.get("versions") or {}).items()},
        "threads": torch.pop("threads", None),
        "seed": torch.pop("seed", None),
        **{f"precision.{name}": torch.pop(name, None) for name in ("dtype", "matmul")},
        **{f"torch.{name}": value for name, value in torch.items()},
    }


def _optimizer(facts: dict[str, Any], key: int) -> dict[str, Any]:
    which = "optimizer" if key == 0 else f"optimizer {key + 1}"
    types = facts.get("dtypes") or {}
    found = {
        which: facts.get("type"),
        **{f"{which}.{name}": value for name, value in (facts.get("settings") or {}).items()},
    }
    if key == 0:
        found |= {"model.parameters": facts.get("parameters"), "precision.parameters": ", ".join(types) or None}
        found["model.devices"] = ", ".join(facts.get("devices") or []) or None
    return found


def _git(facts: dict[str, Any], _key: int) -> dict[str, Any]:
    return {"git.dirty": facts.get("dirty"), "git.diff": facts.get("diff")}


def _nothing(_facts: dict[str, Any], _key: int) -> dict[str, Any]:
    return {}


def _model(facts: dict[str, Any], key: int) -> dict[str, Any]:
    which = "model" if key == 0 else f"model {key + 1}"
    found = {f"{which}.{name}": facts.get(name) for name in ("type", "frozen", "compiled")}
    return {**found, "precision.autocast": facts.get("autocast")} if key == 0 else found


_MARKS: dict[str, Callable[[dict[str, Any], int], dict[str, Any]]] = {
    probe.ENVIRONMENT: environment,
    probe.OPTIMIZER_SETTINGS: _optimizer,
    probe.MODEL: _model,
    probe.GIT: _git,
}


def _processes(run: Run) -> dict[str, Any]:
    sizes = [row["world_size"] for row in run.rows if row["world_size"]]
    hosts = sorted({str(row["host"]) for row in run.rows})
    rows = run.sql(
        "SELECT name, max(value) FROM events WHERE kind = 'counter' AND cat = 'system' AND name = 'cores' GROUP BY 1"
    ).fetchall()
    counters = {name: int(value) for name, value in rows if value is not None}
    return {
        "hosts": ", ".join(hosts) or None,
        "world_size": max(sizes, default=None),
        "cores": counters.get("cores"),
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
        found |= {f"{which}.{name}": NONE if args[name] is None else args[name] for name in LOADER if name in args}
    return found
