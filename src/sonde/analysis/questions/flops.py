"""Floating-point operations: per step, per second, and as a share of the peak."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sonde.store import probe

if TYPE_CHECKING:
    from sonde.analysis.run import Run


@dataclass(frozen=True)
class Flops:
    """Of all ranks together. `uncounted`: why a step could not be counted; the numbers are then null."""

    step: int | None  # the one that was counted
    per_step: float | None
    per_s: float | None  # by the median step after the warm-up
    peak: float | None  # of all devices, as the setting `peak_flops` gives it for one
    utilization: float | None  # share of the peak (MFU)
    uncounted: str | None


def flops(run: Run) -> Flops | None:
    """Those of a run; None: nobody asked for them, or the training was too short."""
    names = run.database.source.name_counts.values()
    if not any(one.cat == probe.FLOPS for named in names for one in named):
        return None
    ((why,),) = run.database.beside(
        f"SELECT any_value(args->>'$.why') FROM events WHERE cat = '{probe.FLOPS}' AND name = 'uncounted'"
    )
    if why is not None:
        return Flops(None, None, None, None, None, why)
    counted = {
        process: (step, value)
        for process, step, value in run.database.beside(
            f"SELECT process, step, value FROM events WHERE cat = '{probe.FLOPS}' AND name = 'step' ORDER BY step"
        )
    }
    rows = run.sql(
        "SELECT coalesce(rank::VARCHAR, process), process, median(dur_ns) FILTER (NOT warmup AND dur_ns > 0) FROM steps "
        "GROUP BY rank, process ORDER BY min(start_ns)"
    ).fetchall()
    last = {who: (process, median) for who, process, median in rows if process in counted}  # of several attempts
    values = [counted[process][1] for process, _ in last.values()]
    rates = [counted[process][1] / median * 1e9 for process, median in last.values() if median]
    per_s = sum(rates) if rates else None
    peak = _peak(run, len(last))
    share = per_s / peak if per_s is not None and peak is not None else None
    step = next(iter(counted.values()))[0]
    return Flops(step, sum(values) if values else None, per_s, peak, share, None)


def _peak(run: Run, devices: int) -> float | None:
    settings = run.meta.get("settings")
    given = settings.get("peak_flops") if isinstance(settings, dict) else None
    return given * devices if isinstance(given, int | float) and not isinstance(given, bool) and given > 0 else None
