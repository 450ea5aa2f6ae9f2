"""`/metrics`: the runs that record now, for Prometheus; if none does, the newest one."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from sonde.analysis.run import RECORDING
from sonde.errors import RunNotFound, RunUnreadable
from sonde.exchange import prometheus
from sonde.views.outcome import read_outcome
from sonde.views.runs import list_runs
from sonde.web.asking import Binary
from sonde.web.folder import MOST_OPEN

if TYPE_CHECKING:
    from sonde.exchange.prometheus import Sample
    from sonde.web.folder import RunsFolder

TEXT = "text/plain; version=0.0.4; charset=utf-8"


def metrics(folder: RunsFolder) -> Binary:
    """The values of all of them. A growing run is not read anew for each scrape: that may cost 5 % of a core."""
    found: list[Sample] = []
    for id in _chosen(folder):
        with suppress(RunNotFound, RunUnreadable, FileNotFoundError):  # deleted just now
            opened = folder.get(id)
            with opened.lock:
                opened.bring_up_to_date()
                kept = read_outcome(opened.run.path)
                found += prometheus.samples(opened.run, None if kept is None else kept.verdict)
    return Binary(prometheus.text(found).encode(), TEXT)


def _chosen(folder: RunsFolder) -> list[str]:
    if folder.chosen:
        return [folder.chosen]
    listed = list_runs(folder.path).runs
    recording = [one.id for one in listed if one.state == RECORDING]
    return recording[:MOST_OPEN] or [one.id for one in listed[:1]]
