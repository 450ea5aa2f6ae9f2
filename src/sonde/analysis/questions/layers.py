"""The layers of a model over a whole run, as a list and as a tree: what each costs in a step, how large it is, how it learns. Recorded in deep mode only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sonde.analysis.records.schema import quoted
from sonde.errors import UnknownName

if TYPE_CHECKING:
    from sonde.analysis.run import Run


@dataclass(frozen=True)
class LayerTimes:
    """One layer. Times are means over the steps that have it, layers inside of it included."""

    layer: str
    type: str | None
    steps: int
    calls: int
    forward_ns: float | None
    backward_ns: float | None
    activation_bytes: int | None
    parameter_bytes: int | None
    gradient_bytes: int | None
    compiled: bool
    share: float | None  # of the time of the layers that have no other one around them


def layers(run: Run) -> list[LayerTimes]:
    """All layers, the costliest first."""
    rows = run.sql(
        """
        SELECT layer, any_value(type), count(*), sum(calls)::BIGINT, avg(forward_ns), avg(backward_ns),
               max(activation_bytes), max(parameter_bytes), max(gradient_bytes), coalesce(bool_or(compiled), false)
        FROM layers GROUP BY layer ORDER BY coalesce(avg(forward_ns), 0) + coalesce(avg(backward_ns), 0) DESC, layer
        """
    ).fetchall()
    names = {row[0] for row in rows}
    top = [row for row in rows if not any(row[0].startswith(f"{name}.") for name in names if name)]
    whole = sum((row[4] or 0) + (row[5] or 0) for row in top)
    return [_layer(row, whole) for row in rows]


def _layer(row: tuple[Any, ...], whole: float) -> LayerTimes:
    layer, type, steps, calls, forward, backward, activation, parameters, gradients, compiled = row
    share = ((forward or 0) + (backward or 0)) / whole if whole and not compiled else None
    return LayerTimes(
        layer, type, steps, calls or 0, forward, backward, activation, parameters, gradients, compiled, share
    )


@dataclass(frozen=True)
class Learned:
    """What samples of `--learning` say of a layer: medians over them; `dead` and `nonfinite`: the most of any."""

    samples: int = 0
    gradient_norm: float | None = None
    update_ratio: float | None = None
    nonfinite: float | None = None
    dead: float | None = None


@dataclass(frozen=True)
class LayerNode:
    """A layer, or a part of the model that was not recorded by itself: then its numbers are sums of what is below."""

    layer: str
    name: str  # the last part of it
    parent: str | None
    depth: int
    inside: int  # how many layers are below
    type: str | None
    steps: int | None
    calls: int | None
    forward_ns: float | None
    backward_ns: float | None
    share: float | None
    activation_bytes: int | None
    parameter_bytes: int | None  # its own, and those of all below
    gradient_bytes: int | None
    compiled: bool
    learned: Learned


@dataclass(frozen=True)
class LayerHistory:
    """Numbers of a layer over the steps. A point stands for several steps where they are many: means, and the longest."""

    steps: list[int]
    forward_ns: list[float | None]
    backward_ns: list[float | None]
    longest_ns: list[int | None]
    activation_bytes: list[int | None]
    width: int  # steps of one point


@dataclass(frozen=True)
class Sampled:
    """One number of a layer in the sampled steps; the mean over ranks."""

    name: str
    x: list[int]
    y: list[float | None]


def layer_tree(run: Run) -> list[LayerNode]:
    """All layers and parts, each parent before what is in it; the costliest of a part first."""
    found = {one.layer: one for one in layers(run)}
    learned = _learned(run)
    below: dict[str | None, list[str]] = {}
    for name in dict.fromkeys(part for layer in found for part in _path(layer)):
        below.setdefault(_parent(name), []).append(name)
    made: dict[str, LayerNode] = {}

    def make(name: str, depth: int) -> None:
        inside = below.get(name, [])
        for part in inside:
            make(part, depth + 1)
        made[name] = _node(name, depth, found.get(name), [made[part] for part in inside], learned.get(name, Learned()))

    def listed(name: str) -> list[LayerNode]:
        parts = sorted(below.get(name, []), key=lambda part: (-_cost(made[part]), part))
        return [made[name], *(one for part in parts for one in listed(part))]

    tops = below.get(None, [])
    for name in tops:
        make(name, 0)
    return [one for name in sorted(tops, key=lambda name: (-_cost(made[name]), name)) for one in listed(name)]


def layer_history(run: Run, layer: str, points: int) -> tuple[LayerTimes, LayerHistory]:
    """One layer over the steps. Raises UnknownName if there is none of this name."""
    found = next((one for one in layers(run) if one.layer == layer), None)
    if found is None:
        raise UnknownName(f"There is no layer {layer!r} in this run.")
    where = f"layer = {quoted(layer)} AND step IS NOT NULL"
    ((first, last),) = run.sql(f"SELECT min(step), max(step) FROM layers WHERE {where}").fetchall()
    width = 1 if first is None else max(1, -(-(last - first + 1) // points))
    rows = run.sql(
        f"SELECT min(step), avg(forward_ns), avg(backward_ns), max(coalesce(forward_ns, 0) + coalesce(backward_ns, 0)), "
        f"max(activation_bytes) FROM layers WHERE {where} GROUP BY (step - {first or 0}) // {width} ORDER BY 1"
    ).fetchall()
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], [], []]
    steps, forward, backward, longest, activation = columns
    return found, LayerHistory(steps, forward, backward, longest, activation, width)


_GRADIENTS = ("norm", "weight_norm", "update_norm", "update_ratio", "zeros", "nonfinite")
_ACTIVATIONS = ("mean", "std", "zeros", "saturated", "dead")
_TITLES = {
    "norm": "gradient norm",
    "weight_norm": "weight norm",
    "update_norm": "update norm",
    "update_ratio": "update / weight",
    "zeros": "gradient zeros",
    "nonfinite": "gradient NaN or infinite",
}


def layer_learning(run: Run, layer: str) -> list[Sampled]:
    """How a layer learned: gradient, weights, update, and its results."""
    where = f"layer = {quoted(layer)} AND step IS NOT NULL"
    each = f"SELECT step, process, {_ONE_LAYER} FROM gradients WHERE {where} GROUP BY ALL"
    means = ", ".join(f"avg({name})" for name in _GRADIENTS)
    gradients = run.sql(f"SELECT step, {means} FROM ({each}) GROUP BY step ORDER BY step").fetchall()
    means = ", ".join(f"avg({name})" for name in _ACTIVATIONS)
    results = run.sql(f"SELECT step, {means} FROM activations WHERE {where} GROUP BY step ORDER BY step").fetchall()
    found = [_sampled(_TITLES[name], gradients, place) for place, name in enumerate(_GRADIENTS, 1)]
    found += [_sampled(f"output {name}", results, place) for place, name in enumerate(_ACTIVATIONS, 1)]
    return [one for one in found if any(value is not None for value in one.y)]


# A layer whose parameters are in several groups has one row for each.
_ONE_LAYER = (
    "sqrt(sum(norm * norm)) AS norm, sqrt(sum(weight_norm * weight_norm)) AS weight_norm, "
    "sqrt(sum(update_norm * update_norm)) AS update_norm, "
    "sqrt(sum(update_norm * update_norm)) / nullif(sqrt(sum(weight_norm * weight_norm)), 0) AS update_ratio, "
    "avg(zeros) AS zeros, max(nonfinite) AS nonfinite"
)


def _sampled(title: str, rows: list[tuple[Any, ...]], place: int) -> Sampled:
    return Sampled(title, [row[0] for row in rows], [row[place] for row in rows])


def _learned(run: Run) -> dict[str, Learned]:
    each = f"SELECT layer, step, process, {_ONE_LAYER} FROM gradients WHERE layer IS NOT NULL GROUP BY ALL"
    found = {
        layer: Learned(samples, norm, ratio, nonfinite)
        for layer, samples, norm, ratio, nonfinite in run.sql(
            f"SELECT layer, count(DISTINCT step), median(norm), median(update_ratio), max(nonfinite) FROM ({each}) GROUP BY layer"
        ).fetchall()
    }
    for layer, samples, dead in run.sql(
        "SELECT layer, count(DISTINCT step), max(dead) FROM activations GROUP BY layer"
    ).fetchall():
        one = found.get(layer, Learned(samples))
        found[layer] = Learned(one.samples, one.gradient_norm, one.update_ratio, one.nonfinite, dead)
    return found


def _path(layer: str) -> list[str]:
    """`a`, `a.b`, `a.b.c`."""
    parts = layer.split(".")
    return [".".join(parts[: place + 1]) for place in range(len(parts))]


def _parent(layer: str) -> str | None:
    return layer.rpartition(".")[0] if "." in layer else None


def _cost(one: LayerNode) -> float:
    return (one.forward_ns or 0.0) + (one.backward_ns or 0.0)


def _node(name: str, depth: int, own: LayerTimes | None, below: list[LayerNode], learned: Learned) -> LayerNode:
    shares = _sum(one.share for one in below)
    return LayerNode(
        layer=name,
        name=name.rpartition(".")[2] or name,
        parent=_parent(name),
        depth=depth,
        inside=sum(1 + one.inside for one in below),
        type=own.type if own else None,
        steps=own.steps if own else None,
        calls=own.calls if own else None,
        forward_ns=own.forward_ns if own else _sum(one.forward_ns for one in below),
        backward_ns=own.backward_ns if own else _sum(one.backward_ns for one in below),
        share=own.share if own else shares,
        activation_bytes=own.activation_bytes if own else _whole(_sum(one.activation_bytes for one in below)),
        parameter_bytes=_whole(_sum([own.parameter_bytes if own else None, *(one.parameter_bytes for one in below)])),
        gradient_bytes=_whole(_sum([own.gradient_bytes if own else None, *(one.gradient_bytes for one in below)])),
        compiled=own.compiled if own else bool(below) and all(one.compiled for one in below),
        learned=learned,
    )


def _sum(values: Any) -> float | None:
    """The sum of what is known; None if nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
