"""Words for the loader as a pipeline, the same in the terminal and on pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units

if TYPE_CHECKING:
    from sonde.analysis.questions.loader import LoaderPipeline, PredictedSetting, Stage

MOST_SETTINGS = 6


def setting_line(found: LoaderPipeline) -> str:
    """`2 workers, prefetch_factor=2`."""
    ahead = "" if found.prefetch is None else f", prefetch_factor={found.prefetch}"
    return f"{units.plural(found.workers, 'worker')}{ahead}"


def ready_line(found: LoaderPipeline) -> str | None:
    """How long finished batches wait, and how many there are."""
    if found.ready_ns is None or found.empty is None or found.ready is None:
        return None
    return (
        f"a finished batch waits {units.duration(found.ready_ns)} (median); on average {found.ready:.1f} are ready; "
        f"{units.share(found.empty)} of requests find none"
    )


def what_if_line(found: LoaderPipeline) -> str | None:
    """`2 workers 1.9x, 4 workers 3.6x`: how many times as fast, as the simulation has it."""
    shown = [f"{setting_name(one, found)} {units.times(one.speedup)}" for one in found.settings[:MOST_SETTINGS]]
    return ", ".join(shown) or None


def setting_name(one: PredictedSetting, found: LoaderPipeline) -> str:
    """What another setting is called: by what differs."""
    if one.workers == found.workers:
        return f"prefetch_factor={one.prefetch}"
    return units.plural(one.workers, "worker") if one.workers else "no workers"


def gain(stage: Stage) -> str:
    """How fast training would be without a stage."""
    return "" if stage.speedup is None else units.times(stage.speedup)


def why_not(found: LoaderPipeline) -> str | None:
    """Why nothing is predicted; None: it is."""
    if found.settings:
        return None
    off = "" if found.error is None else f": a simulation of this run is off by {units.share(abs(found.error))}"
    return f"No prediction for other settings{off}."
