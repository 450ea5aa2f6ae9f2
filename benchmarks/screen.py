"""What the benchmarks found, as tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import budgets, step
from benchmarks.faults import score


def show(results: dict[str, Any], checked: list[budgets.Budget], console: Console) -> None:
    """The tables of what was measured, one below the other; the budgets last."""
    for part, table in TABLES.items():
        if part in results:
            console.print(table(results[part]))
    for name, reason in results.get("spans", {}).get("missing", {}).items():
        console.print(f"  left out: {name} ({reason})", style="dim", markup=False, highlight=False)
    for line in score.sentences(results["faults"]) if "faults" in results else ():
        console.print(f"  {line}", markup=False, highlight=False)
    console.print(budget_table(checked))


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def span_table(result: dict[str, Any]) -> Table:
    """Added CPU per span, with ratios."""
    call, floor = result["call_ns"], result["floor_ns"]
    ours = {(row["state"], row["case"]): row["ns"] for row in result["rows"] if row["subject"] == "sonde (C core)"}
    title = f"CPU added per span; an empty call is {_number(call)} ns, two C clock reads {_number(floor)} ns"
    table = Table(title=title, title_justify="left")
    for name in ("recorder", "state", "as"):
        table.add_column(name)
    for name in ("ns", "x call", "x clocks", "x Sonde"):
        table.add_column(name, justify="right")
    for row in sorted(result["rows"], key=lambda row: (row["state"] == "off", row["case"], row["ns"])):
        against = ours.get((row["state"], row["case"]))
        table.add_row(
            row["subject"], row["state"], row["case"], _number(row["ns"]), _number(row["ns"] / call),
            _number(row["ns"] / floor if floor else None), _number(row["ns"] / against if against else None),
        )  # fmt: skip
    return table


def reading_table(result: dict[str, Any]) -> Table:
    """What the events weigh on disk, and what it costs to summarise them."""
    title = f"{result['events']:,} spans recorded, then counted with total, p50 and p99 per name"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in ("bytes/event", "CPU s", "peak MB"):
        table.add_column(name, justify="right")
    rows = (
        ("recorded", None, result["record"]),
        ("read raw", result["raw_bytes_per_event"], result["read_raw"]),
        ("sealed", None, result["seal"]),
        ("read sealed", result["sealed_bytes_per_event"], result["read_sealed"]),
    )
    for name, size, use in rows:
        table.add_row(name, _number(size), _number(use["cpu_s"], 2), _number(use["peak_mb"], 0))
    return table


def value_table(result: dict[str, Any]) -> Table:
    """What it costs to describe an array."""
    table = Table(title="CPU µs to describe float32 values: statistics and digest", title_justify="left")
    table.add_column("size")
    ways = {
        "one read": "read",
        "Sonde": "sonde",
        "xxh3 alone": "xxh3",
        "NumPy's statistics": "numpy",
        "as the peer": "peer",
    }
    for name in ways:
        table.add_column(name, justify="right")
    for row in result["sizes"]:
        table.add_row(row["size"], *(_number(row[f"{way}_us"], 2) for way in ways.values()))
    return table


STEP_TITLE = "CPU µs added to a step of training, and its share of the bare step"


def step_table(result: dict[str, Any], title: str = STEP_TITLE) -> Table:
    """What each recorder adds to a step of training."""
    table = Table(title=title, title_justify="left")
    table.add_column("recorder")
    for model in step.MODELS:
        table.add_column(model, justify="right")
    for name, found in result.items():
        table.add_row(name, *(_added(found[model]) for model in step.MODELS))
    return table


def deep_table(result: dict[str, Any]) -> Table:
    """What each recorder of layers adds to a step."""
    title = "Every layer of a 12-layer encoder: CPU µs added to a step of training"
    return _one_model(title, "recorder", "12-layer encoder", result)


def feeding_table(result: dict[str, Any]) -> Table:
    """What recording adds to a step that is fed by a loader."""
    return _one_model("CPU µs added to the step of an MLP that takes its batch from a loader", "loader", "MLP", result)


def _one_model(title: str, first: str, model: str, result: dict[str, Any]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first)
    table.add_column(model, justify="right")
    for name, found in result.items():
        table.add_row(name, _added(found))
    return table


def _added(one: dict[str, Any]) -> str:
    if "missing" in one:
        return "-"
    return f"{one['added_us']:+,.1f} of {one['bare_us']:,.0f}  {one['added_us'] / one['bare_us']:+.1%}"


def blackbox_table(result: dict[str, Any]) -> Table:
    """What the black box and the watch add to a step of training."""
    return step_table(result, "The black box and the watch: CPU µs added to a step of training")


def program_table(result: dict[str, Any]) -> Table:
    """What Sonde adds to the steps of real programs."""
    title = f"Real programs: a step under Sonde, x the bare step; the start takes {result['start_s']:.2f} s CPU more"
    table = Table(title=title, title_justify="left")
    table.add_column("program")
    for name in ("bare ms", *budgets.PROGRAMS):
        table.add_column(name, justify="right")
    for name, found in result["steps"].items():
        ratios = (_number(found.get(mode), 3) for mode in budgets.PROGRAMS)
        table.add_row(name, _number(found["bare_us"] / 1000, 2), *ratios)
    return table


def option_table(result: list[dict[str, Any]]) -> Table:
    """What options add to a training that is recorded anyway."""
    table = Table(title="A step with an option, x the step recorded without it", title_justify="left")
    for name in ("option", "model"):
        table.add_column(name)
    for name in ("recorded ms", "ratio", "lowest", "highest"):
        table.add_column(name, justify="right")
    for one in result:
        ratios = (_number(one[name], 3) for name in ("ratio", "low", "high"))
        table.add_row(one["option"], one["model"], _number(one["plain_us"] / 1000, 2), *ratios)
    return table


def provider_table(result: dict[str, Any]) -> Table:
    """The provider of the pipeline beside code written by hand."""
    rows = [
        ("provider + collate, CPU µs per item", _number(result["provider_us"], 2)),
        ("bare getters + np.stack, CPU µs per item", _number(result["bare_us"], 2)),
        *((f"peak MB, {count} items", _number(peak)) for count, peak in result["peak_mb"].items()),
    ]
    return _pairs("The data of the pipeline", rows)


def infer_table(result: dict[str, Any]) -> Table:
    """Inference beside a loop written by hand."""
    rows = [
        ("infer, items per s", _number(result["infer_items_per_s"], 0)),
        ("the same by hand, items per s", _number(result["hand_items_per_s"], 0)),
        ("infer over by hand, CPU", _number(result["infer_over_hand_cpu"], 2)),
        ("share of infer that waits for Lance", f"{result['lance_share']:.1%}"),
        ("import sonde.pipeline with torch, over torch alone", _number(result["pipeline_over_torch"], 2)),
        ("packages of the extra (the peer: 244)", str(result["packages"])),
        ("MB of the extra, with torch", _number(result["installed_mb"], 0)),
    ]
    return _pairs("Inference with the pipeline", rows)


def item_table(result: dict[str, Any]) -> Table:
    """What recording adds to an item."""
    rows = [(f"batch of {row['batch']}", _number(row["added_ns"])) for row in result["rows"]]
    return _pairs("CPU ns added to an item in a loader worker", rows)


def exchange_table(result: dict[str, Any]) -> Table:
    """Traces in, runs out, trackers."""
    rows = []
    for one in result["imports"]:
        rows.append((f"import of {one['format']}, MB/s of CPU time", f"{one['mb_per_s']:.0f}"))
        rows.append(("  json.loads, MB/s", f"{one['json_mb_per_s']:.0f}"))
        rows.append(("  peak MB, and that of json.loads", f"{one['peak_mb']:.0f}, {one['json_peak_mb']:.0f}"))
    for one in result["exports"]:
        rows.append(
            (f"export of {one['events']:,} to {one['format']}, per s of CPU time", f"{one['events_per_s']:,.0f}")
        )
        rows.append(("  peak MB", f"{one['peak_mb']:.0f}"))
    for one in result["trackers"]:
        measured = f"{one['added_us']:.1f} ({one['lowest_us']:.1f} to {one['highest_us']:.1f})"
        rows.append((f"µs added to a training step by {one['tracker']}", measured))
    return _pairs("Traces in, runs out", rows)


def _pairs(title: str, rows: list[tuple[str, str]]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("what")
    table.add_column("measured", justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def training_table(result: dict[str, Any]) -> Table:
    """What it costs to ask the tables of a long training."""
    table = Table(title=f"Tables of {result['steps']:,} steps x {result['ranks']} ranks", title_justify="left")
    table.add_column("table")
    for name in ("raw: CPU s", "peak MB", "sealed: CPU s", "peak MB"):
        table.add_column(name, justify="right")
    for name, raw in result["raw"].items():
        both = (raw, result["sealed"][name])
        table.add_row(name, *(text for use in both for text in (_number(use["cpu_s"]), _number(use["peak_mb"], 0))))
    return table


def budget_table(checked: list[budgets.Budget]) -> Table:
    """Every budget and its verdict."""
    table = Table(title="Budgets", title_justify="left")
    for name, justify in (("what", "left"), ("measured", "right"), ("budget", "right"), ("unit", "left"), ("", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for budget in checked:
        style = "bold red" if budget.verdict == "MISSED" else None
        table.add_row(
            budget.what, _number(budget.measured, 2), f"<= {budget.limit:g}", budget.unit, budget.verdict, style=style
        )
    return table


def viewer_table(result: dict[str, Any]) -> Table:
    """One trace in several viewers, and what stands beside a training that is looked at."""
    title = f"A trace of {result['events']:,} events ({result['trace_mb']:,.0f} MB of JSON) until it is shown; processes beside a training"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in ("seconds", "server MB", "page MB", "processes", "RSS MB"):
        table.add_column(name, justify="right")
    for name, row in (result["viewers"] | result["dashboards"]).items():
        if "missing" in row:
            table.add_row(name, f"n/a: {row['missing']}")
            continue
        table.add_row(
            name, _number(row.get("seconds")), _number(row.get("server_mb"), 0), _number(row.get("page_mb"), 0),
            _number(row.get("processes"), 0), _number(row.get("rss_mb"), 0),
        )  # fmt: skip
    return table


TABLES: dict[str, Callable[[Any], Table]] = {
    "spans": span_table,
    "reading": reading_table,
    "values": value_table,
    "steps": step_table,
    "feeding": feeding_table,
    "deep": deep_table,
    "blackbox": blackbox_table,
    "options": option_table,
    "programs": program_table,
    "items": item_table,
    "provider": provider_table,
    "infer": infer_table,
    "exchange": exchange_table,
    "tables": training_table,
    "viewers": viewer_table,
    "faults": score.score_table,
}
