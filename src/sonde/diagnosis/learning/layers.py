"""Layers over the sampled steps: gradients, weights, updates and results, and which of them can learn at all."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sonde.diagnosis.figures import NOTHING, Asker, Figure, Figures, literal
from sonde.store import probe

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "model || '/' || layer"


@dataclass(frozen=True)
class Layer:
    """A layer with parameters. What the sampled steps said of it: `figures`, where it has an optimizer."""

    name: str  # "model/layer"
    place: int
    parameters: int
    frozen: bool
    gradient: bool  # it had one, some time
    optimized: bool
    figures: Figures

    @property
    def model(self) -> str:
        """The model that it is of."""
        return self.name.partition("/")[0]

    @property
    def short(self) -> str:
        """Its name in the model."""
        return self.name.partition("/")[2]


@dataclass(frozen=True)
class Activation:
    """What a layer gave. `feeds`: a layer with parameters comes after it in its model."""

    name: str
    figures: Figures  # samples, dead, saturated, zeros: medians over the later half
    feeds: bool


@dataclass(frozen=True)
class Layers:
    """Those of one process."""

    samples: Figure = NOTHING  # steps with gradients
    layers: list[Layer] = field(default_factory=list)
    activations: list[Activation] = field(default_factory=list)
    norm: Figures = field(default_factory=lambda: Figures({}, {}))  # of all gradients together
    clipping: Figures = field(default_factory=lambda: Figures({}, {}))

    def models(self) -> dict[str, list[Layer]]:
        """The layers of each model, in their order."""
        found: dict[str, list[Layer]] = {}
        for one in sorted(self.layers, key=lambda layer: layer.place):
            found.setdefault(one.model, []).append(one)
        return found


def gather_layers(ask: Asker, process: str) -> Layers:
    """Ask about the layers of a process, if `--learning` has sampled some steps of it."""
    here = f"process = {literal(process)}"
    if not ask.has(probe.GRADIENT):
        return Layers()
    updated = f"gradients WHERE {here} AND step NOT IN (SELECT step FROM steps WHERE {here} AND skipped)"
    samples = ask.one(updated, {"count": "count(DISTINCT step)"})["count"]
    total = (
        f"(SELECT step, ntile(4) OVER (ORDER BY step) AS part, norm, weight, relative FROM (SELECT step, sqrt(sum(norm * norm)) AS norm, "
        f"sqrt(sum(weight_norm * weight_norm)) AS weight, max(norm / nullif(weight_norm, 0)) AS relative FROM {updated} GROUP BY step))"
    )
    norm = ask.one(
        total,
        {
            "median": "median(norm)",
            "most": "max(norm)",
            "step": "arg_max(step, norm)",
            "early": "median(norm) FILTER (part = 1)",
            "late": "median(norm) FILTER (part = 4)",
            "relative": "median(norm / nullif(weight, 0))",
            "bad": "count(*) FILTER (NOT isfinite(norm))",
        },
    )
    return Layers(samples, _with_parameters(ask, here, updated), _activations(ask, here), norm, _clipping(ask, here))


def _with_parameters(ask: Asker, here: str, updated: str) -> list[Layer]:
    numbered = f"(SELECT *, {NAME} AS name, ntile(2) OVER (PARTITION BY model, layer, optimizer ORDER BY step) AS half FROM {updated})"
    columns = {
        "samples": "count(*)",
        "without": "count(*) FILTER (norm IS NULL)",
        "zero": "count(*) FILTER (norm = 0)",
        "still": "count(*) FILTER (update_norm = 0)",
        "norm": "median(norm)",
        "relative": "median(norm / nullif(weight_norm, 0))",
        "ratio": "median(update_ratio) FILTER (update_ratio > 0)",
        "most_ratio": "max(update_ratio)",
        "early_ratio": "median(update_ratio) FILTER (half = 1)",
        "late_ratio": "median(update_ratio) FILTER (half = 2)",
    }
    measured = {str(row.which["name"]): row for row in ask.by(["name"], numbered, columns)}
    marks = ask.rows(
        f"SELECT name, arg_max(args, start_ns) FROM events WHERE cat = '{probe.LEARNING_LAYER}' AND {here} GROUP BY name"
    )
    found = []
    for name, text in marks:
        about: Mapping[str, int] = json.loads(text)
        figures = measured.get(name, Figures({}, {}))
        frozen, gradient, optimized = (bool(about[word]) for word in ("frozen", "gradient", "optimized"))
        found.append(Layer(name, int(about["place"]), int(about["parameters"]), frozen, gradient, optimized, figures))
    return found


def _activations(ask: Asker, here: str) -> list[Activation]:
    numbered = f"(SELECT *, {NAME} AS name, ntile(2) OVER (PARTITION BY model, layer ORDER BY step) AS half FROM activations WHERE {here})"
    later = "FILTER (half = 2)"
    columns = {
        "samples": "count(*)",
        "dead": f"median(dead) {later}",
        "saturated": f"median(saturated) {later}",
        "zeros": f"median(zeros) {later}",
    }
    rows = ask.by(["name"], numbered, columns, "dead IS NOT NULL OR saturated IS NOT NULL")
    # The order of the layers of a model is that in which the results of a sampled step were written.
    order = ask.rows(
        f"SELECT name, min(start_ns) FROM events WHERE cat = '{probe.ACTIVATION}mean' AND {here} GROUP BY name ORDER BY 2"
    )
    place = {name: number for number, (name, _) in enumerate(order)}
    last: dict[str, int] = {}
    for (name,) in ask.rows(f"SELECT DISTINCT {NAME} FROM gradients WHERE {here}"):
        model = name.partition("/")[0]
        last[model] = max(last.get(model, -1), place.get(name, -1))
    found = []
    for row in rows:
        name = str(row.which["name"])
        found.append(Activation(name, row, place.get(name, 0) < last.get(name.partition("/")[0], -1)))
    return found


def _clipping(ask: Asker, here: str) -> Figures:
    return ask.one(
        f"events WHERE kind = 'counter' AND cat = '{probe.LEARNING}' AND {here}",
        {
            "norm": "median(value) FILTER (name = 'clip.norm')",
            "limit": "median(value) FILTER (name = 'clip.limit')",
            "count": "count(*) FILTER (name = 'clip.norm')",
        },
    )
