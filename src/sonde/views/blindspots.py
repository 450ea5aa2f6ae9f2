"""What a report cannot know: of this run, and of any run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sonde import units
from sonde.analysis.questions.hosts import host_clocks
from sonde.analysis.records.schema import BESIDE, quoted
from sonde.store import probe
from sonde.store.alive import LAUNCHER
from sonde.store.blindspots import BLIND_SPOTS

if TYPE_CHECKING:
    from sonde.analysis.run import Run
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy

MOST_NAMED = 8  # ranks, or processes
FAR_NS = 3600 * 10**9  # clocks of two hosts that disagree by so much are reported


@dataclass(frozen=True)
class BlindSpot:
    """Something that was not seen. `scope`: "run" for what is missing in this one, "always" for what no run shows."""

    what: str
    scope: str


def blind_spots(run: Run, facts: Facts, policy: Policy, seen: set[str]) -> list[BlindSpot]:
    """What is missing in this run first."""
    found = [
        *_ranks(run.rows),
        *_unequal(facts),
        *_clocks(run),
        *_marks(run),
        *_compiled(run, seen),
        *_threads(run),
        *_chosen(run.meta),
        *(_imported(run, facts, seen) if run.meta.get("imported") else _loading(facts, seen)),
        *_crowded(facts, policy),
    ]
    return [BlindSpot(text, "run") for text in found] + [BlindSpot(text, "always") for text in BLIND_SPOTS]


def _ranks(rows: list[dict[str, Any]]) -> list[str]:
    """Ranks of the job that are not in the run."""
    world = max((row["world_size"] for row in rows if row["world_size"]), default=0)
    there = {row["rank"] for row in rows if row["rank"] is not None and row["role"] != LAUNCHER}
    missing = [rank for rank in range(min(world, 100_000)) if rank not in there]
    if not missing:
        return []
    word = "rank" if len(missing) == 1 else "ranks"
    return [f"{word} {units.listed(missing, MOST_NAMED)} of {world}: not recorded"]


def _unequal(facts: Facts) -> list[str]:
    """Ranks that are behind the others."""
    last = {rank.rank: rank.last_step for rank in facts.speed.ranks if rank.last_step is not None}
    if len(last) < 2 or max(last.values()) - min(last.values()) < 2:
        return []
    ends = ", ".join(f"rank {rank} at step {step}" for rank, step in list(last.items())[:MOST_NAMED])
    return [f"the ranks end at different steps ({ends}); steps that only some ranks did are not compared"]


def _clocks(run: Run) -> list[str]:
    """Hosts whose clocks cannot both be right, where no collectives say by how much they differ."""
    known = {one.host for one in host_clocks(run) if one.collectives is not None}
    starts: dict[str, int] = {}
    for row in run.rows:
        if row["host"] in known:
            continue
        if row["start_ns"] is not None:
            starts[row["host"]] = min(row["start_ns"], starts.get(row["host"], row["start_ns"]))
    if len(starts) < 2 or max(starts.values()) - min(starts.values()) < FAR_NS:
        return []
    hours = (max(starts.values()) - min(starts.values())) / 3600e9
    return [f"the host clocks differ by {hours:.1f} h: durations are right, the order between hosts is not"]


def _marks(run: Run) -> list[str]:
    """Probes that switched themselves off, and processes that were not reached."""
    rows = run.sql(
        f"""
        SELECT DISTINCT cat, name, args FROM {BESIDE} WHERE kind = 'mark' AND (cat = '{probe.OFF}'
            OR cat = '{probe.NONFINITE_UNSEEN}' OR cat = '{probe.PROCESS}' AND name = '{probe.UNSEEN}') ORDER BY ALL LIMIT 20
        """  # noqa: S608  our own names
    ).fetchall()
    found = []
    for cat, name, args in rows:
        given = _object(args)
        if cat == probe.OFF:
            found.append(f"the probe {name} switched itself off: {given.get('reason', 'no reason given')}")
        elif cat == probe.NONFINITE_UNSEEN:
            found.append(
                f"non-finite values inside {name}: it was compiled by torch.compile, so only its output was watched"
            )
        else:
            found.append(f"{_command(given.get('command'))}: {given.get('reason', 'Sonde did not reach it')}")
    return found


def _compiled(run: Run, seen: set[str]) -> list[str]:
    """Layers that torch.compile took: they are listed, and have no times."""
    if "layer" not in seen:
        return []
    names = [
        name
        for (name,) in run.sql(
            f"SELECT DISTINCT name FROM {BESIDE} WHERE kind = 'mark' AND cat = '{probe.LAYER_INFO}' "  # noqa: S608  our own names
            "AND args->>'$.compiled' = 'true' ORDER BY 1"
        ).fetchall()
    ]
    if not names:
        return []
    listed = ", ".join(name or "the model" for name in names[:MOST_NAMED]) + (
        ", ..." if len(names) > MOST_NAMED else ""
    )
    return [f"{units.plural(len(names), 'layer')} compiled by torch.compile ({listed}): timed as a whole"]


def _threads(run: Run) -> list[str]:
    """Trainings of several threads at once: only one of them has steps."""
    named = {
        process: [one for one in all if one.cat == probe.PROBE]
        for process, all in run.database.source.name_counts.items()
    }
    several = [
        process
        for process, ours in named.items()
        if len({one.lane for one in ours if one.name == probe.OPTIMIZER}) > 1
        and any(one.name == probe.UPDATE for one in ours)
    ]
    if not several:  # as nearly always, and then there is nothing to ask
        return []
    ((count,),) = run.sql(_ASIDE.format(processes=", ".join(map(quoted, several)))).fetchall()
    if not count:
        return []
    given = f"{units.plural(count, 'step')} of optimizers in another thread"
    return [f"{given}: only one of several concurrent trainings in a process is reported"]


# Of two updates the later one ends the step in which something was done: its thread is the one that trained. After the last
# update it is that of the last one. The tables of training settle it in the same way.
_ASIDE = f"""
    WITH done AS (
        SELECT process, name, lane, start_ns FROM events
        WHERE process IN ({{processes}}) AND cat = '{probe.PROBE}' AND (kind, name) IN (('span', '{probe.OPTIMIZER}'), ('mark', '{probe.UPDATE}'))
    ),
    updates AS (SELECT process, lane, start_ns FROM done WHERE name = '{probe.UPDATE}'),
    latest AS (SELECT process, arg_max(lane, start_ns) AS lane FROM updates GROUP BY process)
    SELECT count(*) FROM (SELECT * FROM done WHERE name = '{probe.OPTIMIZER}') o
    ASOF LEFT JOIN updates u ON o.process = u.process AND o.start_ns <= u.start_ns JOIN latest l ON l.process = o.process
    WHERE o.lane <> coalesce(u.lane, l.lane)
"""  # noqa: S608  our own names


def _object(args: str | None) -> dict[str, Any]:
    try:
        given = json.loads(args or "{}")
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}


def _command(words: object) -> str:
    return " ".join(map(str, words[:4])) if isinstance(words, list) else "a process"


def _chosen(meta: dict[str, Any]) -> list[str]:
    """Steps and ranks that were not to be recorded."""
    settings = meta.get("settings")
    if not isinstance(settings, dict):
        return []
    words = {"steps": "steps {}", "every": "every {} steps", "ranks": "ranks {}"}
    chosen = [
        text.format(settings[name]) for name, text in words.items() if settings.get(name) not in (None, 1, "1", "")
    ]
    return [f"phases outside {' and '.join(chosen)}: they were not selected for recording"] if chosen else []


def _loading(facts: Facts, seen: set[str]) -> list[str]:
    found = []
    if facts.speed.inferred:
        found.append(
            "the input wait is inferred from the gap before each forward, because there is no torch DataLoader"
        )
    if probe.MANUAL in seen:
        found.append(
            "updates: there is no torch optimizer, so a step ends at the last backward before the next training "
            "forward; the update counts as untracked"
        )
    if probe.FETCH in seen and probe.ITEM not in seen:
        found.append("load times of single items: the dataset fetches whole batches (__getitems__)")
    if facts.speed.steps.or_zero() and "layer" not in seen:
        found.append("layers: record them with --deep")
    return found


def _imported(run: Run, facts: Facts, seen: set[str]) -> list[str]:
    """What the trace of another tool does not hold."""
    about = run.meta["imported"]
    problems = about.get("problems") if isinstance(about, dict) else None
    found = [str(problem).rstrip(".") for problem in problems or ()]
    if not facts.speed.trained:
        found.append("steps: the trace marks none (ProfilerStep, an optimizer step, compute.step of DFTracer)")
    ((inferred,),) = run.sql(
        "SELECT count(*) FROM events WHERE cat = 'compute' AND args->>'$.inferred' IS NOT NULL"
    ).fetchall()
    if inferred:
        found.append("forward and backward are inferred from the operators: the trace does not mark them")
    missing = {"items and batches": probe.ITEM, "losses": probe.LOSS, "layers": "layer", "host memory": probe.SYSTEM}
    names = [what for what, name in missing.items() if name not in seen]
    return [*found, f"{', '.join(names)}: the imported trace has none"] if names else found


def _crowded(facts: Facts, policy: Policy) -> list[str]:
    """What rules say nothing of, because it may be the doing of others."""
    host = facts.health.crowded_host(policy)
    return [] if host is None else [f"the cause of single slow steps, items and waits: {host.load_sentence}"]
