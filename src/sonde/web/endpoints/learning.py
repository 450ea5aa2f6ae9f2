"""`/learning`: metrics of evaluations, and numbers of layers and batches in sampled steps."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from sonde.analysis.questions.metrics import metrics
from sonde.views import charts

if TYPE_CHECKING:
    from sonde.analysis.run import Run
    from sonde.views.charts import Drawing
    from sonde.web.asking import Ask


def learning(run: Run, ask: Ask) -> object:
    """The same as the HTML report draws."""
    return {
        "metrics": [asdict(one) for one in metrics(run)],
        "evaluation": [_plain(one) for one in charts.evaluation(run)],
        "sampled": [_plain(one) for one in charts.learning(run)],
    }


def _plain(one: Drawing) -> dict[str, object]:
    lines = [
        {
            "name": line.name,
            "x": [one.first_ns + round(place * one.lasted_ns) for place, _ in line.points],
            "y": [value for _, value in line.points],
        }
        for line in one.lines
    ]
    return {"title": one.title, "lines": lines}
