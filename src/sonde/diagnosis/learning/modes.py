"""In which mode models were trained and evaluated, and what happened to their weights and gradients between updates."""

from __future__ import annotations

from dataclasses import dataclass, field

from sonde.diagnosis.figures import NOTHING, Asker, Figure, Figures, literal
from sonde.store import probe

MOST_FORWARDS = 2_000_000  # in a process, that are loaded to see the modes of an evaluation

_MARK = "(args::JSON->>'$.{0}')"


@dataclass(frozen=True)
class Changed:
    """Weights of a layer that were not what the last update had left."""

    layer: str
    times: int
    change: float | None  # relative to their norm; None: not known


@dataclass(frozen=True)
class Modes:
    """Those of one process."""

    models: list[Figures] = field(default_factory=list)  # each: changing, evaluating_steps (sampled), first
    evaluated: Figures = field(default_factory=lambda: Figures({}, {}))  # forwards: count, training
    carried: Figures = field(default_factory=lambda: Figures({}, {}))  # steps, carried
    compared: Figure = NOTHING
    changed: list[Changed] = field(default_factory=list)
    changed_steps: Figure = NOTHING


def gather_modes(ask: Asker, process: str) -> Modes:
    """Ask about the modes of a process that `--learning` has sampled."""
    if not ask.has(probe.LEARNING_MODEL):
        return Modes()
    here = f"process = {literal(process)}"
    changing, evaluating = (f"{_MARK.format(name)}::BIGINT" for name in ("changing", "evaluating"))
    whole = f"{_MARK.format('training')} = 'false' AND {changing} > 0 AND {evaluating} = {changing}"
    models = ask.by(
        ["name"],
        f"(SELECT *, lead(step, 1, (SELECT max(step) + 1 FROM steps WHERE {here})) OVER (PARTITION BY name ORDER BY start_ns) - step AS steps "
        f"FROM events WHERE cat = '{probe.LEARNING_MODEL}' AND {here})",
        {
            "changing": f"max({changing})",
            "steps": "sum(steps)",
            "wrong": f"sum(steps) FILTER ({whole})",
            "first": f"min(step) FILTER ({whole})",
        },
    )
    learning = f"events WHERE kind = 'counter' AND cat = '{probe.LEARNING}' AND {here}"
    carried = ask.one(
        f"{learning} AND name = 'carried' AND step > (SELECT min(step) FROM {learning} AND name = 'carried')",
        {"steps": "count(*)", "carried": "count(*) FILTER (value > 0.5)"},
    )
    compared = ask.one(f"{learning} AND name = 'compared'", {"count": "count(*)"})["count"]
    loaded = f"(SELECT step FROM events WHERE cat = '{probe.PROBE}' AND name = '{probe.LOADED}' AND {here} AND step IS NOT NULL)"
    altered = f"events WHERE cat = '{probe.CHANGED}' AND {here} AND step NOT IN {loaded}"
    steps = ask.one(altered, {"count": "count(DISTINCT step)"})["count"]
    layers = ask.rows(
        f"SELECT name, count(*), max(value) FILTER (isfinite(value)) FROM {altered} GROUP BY name ORDER BY 3 DESC NULLS LAST, name"
    )
    evaluated = Figures({}, {})
    if any(one["changing"].or_zero() > 0 for one in models):
        evaluated = _evaluated(ask, here)
    return Modes(models, evaluated, carried, compared, [Changed(*row) for row in layers], steps)


def _evaluated(ask: Asker, here: str) -> Figures:
    """The first forward after the fetch of each batch for evaluation: in training mode or not."""
    found = ask.one(f"batches WHERE {here} AND purpose = 'evaluate'", {"batches": "count(*)"})
    forwards = ask.one(f"phases WHERE {here} AND phase IN ('forward', 'evaluation')", {"calls": "sum(calls)"})
    if not found["batches"].or_zero() or forwards["calls"].or_zero() > MOST_FORWARDS:
        return Figures({}, {})
    source = (
        f"(SELECT f.key AS key FROM (SELECT start_ns + coalesce(wait_ns, 0) AS since FROM batches WHERE {here} AND purpose = 'evaluate') b "
        f"ASOF JOIN (SELECT start_ns, key FROM events WHERE kind = 'span' AND cat = '{probe.PROBE}' AND name = '{probe.FORWARD}' "
        f"AND key & {probe.FORWARD_LOSS} = 0 AND {here}) f ON b.since <= f.start_ns)"
    )
    return ask.loaded(
        source, {"count": "count(*)", "training": f"count(*) FILTER (key & {probe.FORWARD_TRAINING} <> 0)"}
    )
