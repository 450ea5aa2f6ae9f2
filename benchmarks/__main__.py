"""Run the benchmarks, print one table, write it as JSON: python -m benchmarks [--quick] [--json FILE]."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import budgets, importing, reading, spans, values

EVENTS = 10_000_000


def _tell(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


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


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds and 1 M events: to see that it works")
    parser.add_argument("--json", type=Path, default=Path("bench.json"), help="where to write the results")
    options = parser.parse_args()
    rounds, events = (3, EVENTS // 10) if options.quick else (15, EVENTS)
    results: dict[str, Any] = {"python": platform.python_version(), "machine": platform.platform(), "rounds": rounds}
    results["spans"] = spans.measure(rounds, lambda done, of: _tell(f"spans: round {done + 1} of {of}"))
    _tell("values")
    results["values"] = values.measure(rounds)
    _tell("importing")
    results["importing"] = importing.measure(rounds)
    _tell(f"reading {events:,} events")
    results["reading"] = reading.measure(events)
    _tell("")
    checked = budgets.check(results)
    results["budgets"] = [{**budget._asdict(), "verdict": budget.verdict} for budget in checked]
    console = Console(width=None if sys.stdout.isatty() else 110)
    console.print(span_table(results["spans"]))
    for name, reason in results["spans"]["missing"].items():
        console.print(f"  left out: {name} ({reason})", style="dim", markup=False, highlight=False)
    console.print(reading_table(results["reading"]))
    console.print(value_table(results["values"]))
    console.print(budget_table(checked))
    options.json.write_text(json.dumps(results, indent=2) + "\n")
    console.print(f"Written to {options.json}", style="dim")


if __name__ == "__main__":
    main()
