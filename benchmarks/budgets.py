"""The budgets (DESIGN section 7), and whether a result keeps them. A miss is printed as a miss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Budget(NamedTuple):
    """One promise and what was measured."""

    what: str
    measured: float | None
    limit: float
    unit: str

    @property
    def verdict(self) -> str:
        """kept, MISSED, or not measured."""
        if self.measured is None:
            return "not measured"
        return "kept" if self.measured <= self.limit else "MISSED"


def _ns(spans: dict[str, Any], subject: str, state: str, case: str) -> float | None:
    for row in spans["rows"]:
        if (row["subject"], row["state"], row["case"]) == (subject, state, case):
            return float(row["ns"])
    return None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def check(results: dict[str, Any]) -> list[Budget]:
    """Every budget of the parts that were measured, in the order of the table."""
    return [budget for part, budgets_of in BUDGETS.items() if part in results for budget in budgets_of(results[part])]


def _of_spans(spans: dict[str, Any]) -> list[Budget]:
    floor, call = spans["floor_ns"], spans["call_ns"]
    core = "sonde (C core)"
    return [
        Budget("decorator, on", _ratio(_ns(spans, core, "on", "decorator"), floor), 3.5, "x two C clock reads"),
        Budget("with, on", _ratio(_ns(spans, core, "on", "with"), floor), 4.5, "x two C clock reads"),
        Budget("decorator, off", _ratio(_ns(spans, core, "off", "decorator"), call), 1.5, "x an empty call"),
        Budget("with, off", _ratio(_ns(spans, core, "off", "with"), call), 5.0, "x an empty call"),
        Budget("ai.update(step=)", _ns(spans, core, "on", "ai.update(step)"), 200.0, "ns"),
    ]


def _of_values(values: dict[str, Any]) -> list[Budget]:
    megabyte = next(row for row in values["sizes"] if row["size"] == "1 MB")
    return [
        Budget("describe 1 MB float32", _ratio(megabyte["sonde_us"], megabyte["read_us"]), 4.0, "x one read of it"),
        Budget("describe and print a batch of 32 images", values["print_ms"], 50.0, "ms"),
        Budget("traced function, no trace", _ratio(values["idle_ns"], values["call_ns"]), 1.5, "x an empty call"),
    ]


def _of_importing(importing: dict[str, Any]) -> list[Budget]:
    return [
        Budget("import sonde", importing["import_ms"], 40.0, "ms CPU"),
        Budget("third-party modules at import", float(len(importing["third_party"])), 0.0, "modules"),
    ]


def _of_reading(reading: dict[str, Any]) -> list[Budget]:
    return [
        Budget("sealed size", reading["sealed_bytes_per_event"], 3.0, "bytes/event"),
        Budget("10 M events raw, CPU", reading["read_raw"]["cpu_s"], 2.0, "s"),
        Budget("10 M events raw, peak memory", reading["read_raw"]["peak_mb"], 600.0, "MB"),
        Budget("10 M events sealed, CPU", reading["read_sealed"]["cpu_s"], 2.0, "s"),
        Budget("10 M events sealed, peak memory", reading["read_sealed"]["peak_mb"], 600.0, "MB"),
    ]


def _of_steps(steps: dict[str, Any]) -> list[Budget]:
    return [
        Budget("all phases of an MLP step", steps["sonde"]["MLP"].get("added_us"), 15.0, "µs"),
        Budget("trace_step, MLP step", steps["sonde trace_step"]["MLP"].get("added_us"), 15.0, "µs"),
    ]


def _of_feeding(found: dict[str, Any]) -> list[Budget]:
    """A step with a loader, and a microsecond for each item that the loader makes."""
    return [
        Budget(f"MLP step with {name} from a loader", one.get("added_us"), 35.0 + (32 if "32" in name else 0), "µs")
        for name, one in found.items()
    ]


def _of_deep(found: dict[str, Any]) -> list[Budget]:
    return [Budget("deep, 12-layer encoder", _times(found["sonde deep"]), 1.10, "x the step")]


def _of_blackbox(found: dict[str, Any]) -> list[Budget]:
    return [
        *(
            Budget(f"watch, {model}", _times(found["+ watch"][model]), limit, "x the step")
            for model, limit in WATCH.items()
        ),
        *(Budget(f"black box, {model}", _times(found["+ black box"][model]), 1.05, "x the step") for model in WATCH),
    ]


def _of_options(found: list[dict[str, Any]]) -> list[Budget]:
    return [
        Budget(f"{one['option']}, {one['model']}", one["ratio"], OPTIONS.get(one["option"], 1.02), "x the step")
        for one in found
    ]


def _of_programs(found: dict[str, Any]) -> list[Budget]:
    return [
        *(
            Budget(f"{mode}, program {name}", steps[mode], limit, "x the step")
            for name, steps in found["steps"].items()
            for mode, limit in PROGRAMS.items()
            if mode in steps
        ),
        Budget("start of a program under sonde run", found["start_s"], 0.15, "s CPU"),
    ]


def _of_items(items: dict[str, Any]) -> list[Budget]:
    row = next(row for row in items["rows"] if row["batch"] == 32)
    return [Budget("an item in a loader worker, batch of 32", row["added_ns"], 1000.0, "ns")]


def _of_ledger(ledger: dict[str, Any]) -> list[Budget]:
    return [
        Budget("writing a batch of 64 into the ledger", ledger["write_ns"], 2000.0, "ns"),
        *(
            Budget(f"sealed ledger, {row['dataset']:,} items, {row['sampler']}", row["bytes"], 3.0, "bytes/item")
            for row in ledger["rows"]
        ),
    ]


def _of_report(report: dict[str, Any]) -> list[Budget]:
    return [
        Budget("report of a long training, CPU", report["long"]["cpu_s"], 8.0, "s"),
        Budget("report of a long training, peak memory", report["long"]["peak_mb"], 600.0, "MB"),
        Budget("the same, sealed, CPU", report["long_sealed"]["cpu_s"], 8.0, "s"),
        Budget("the same, sealed, peak memory", report["long_sealed"]["peak_mb"], 600.0, "MB"),
        Budget("report of 200 steps, from command to card", report["short_s"], 1.0, "s"),
        Budget("page of 10,000 steps", report["page_kb"], 500.0, "kB"),
    ]


def _of_scale(found: dict[str, Any]) -> list[Budget]:
    few, many = found["few"], found["many"]
    first = many["seal"]["cpu_s"] + many["report"]["cpu_s"]
    large = found["ranks"] >= LARGE  # in a smaller run, the start of a process is most of either
    dask = _ratio(found["dask"]["cpu_s"], found["loop"]["cpu_s"])
    what = f"{found['ranks']:,} ranks x {found['steps']:,} steps"
    peaks = (
        max(many[one]["peak_mb"] for one in ("seal", "report")),
        max(few[one]["peak_mb"] for one in ("seal", "report")),
    )
    return [
        Budget(f"report, {what}, sealed, CPU", many["report"]["cpu_s"], 6.0, "s"),
        Budget("the same, peak memory", many["report"]["peak_mb"], 800.0, "MB"),
        Budget("first report, sealing included, CPU", first, 90.0, "s"),
        Budget("the same, peak memory of a process", many["seal"]["peak_mb"], 1000.0, "MB"),
        Budget("peak memory, 10x the ranks", _ratio(*peaks) if large else None, 1.3, "x"),
        Budget("sealing on two Dask workers", dask if large else None, 1.25, "x the loop"),
        Budget(f"names of {many['events'] / 1e6:.0f} M events, CPU", many["names"]["cpu_s"], 10.0, "s"),
        Budget("the same, peak memory", many["names"]["peak_mb"], 800.0, "MB"),
        Budget("first screen of watch, many ranks, CPU", many["screen"]["cpu_s"], 2.0, "s"),
        Budget("the same, peak memory", many["screen"]["peak_mb"], 200.0, "MB"),
        Budget("first screen of watch, many ranks, sealed, CPU", many["sealed_screen"]["cpu_s"], 2.0, "s"),
        Budget("the same, peak memory", many["sealed_screen"]["peak_mb"], 200.0, "MB"),
    ]


def _of_pages(pages: dict[str, Any]) -> list[Budget]:
    return [
        Budget("sonde ui: start to the charts of a long run, CPU", pages["first_paint_cpu_s"], 1.5, "s"),
        Budget("sonde ui: its timeline, CPU", pages["timeline_cpu_s"], 2.0, "s"),
        Budget("sonde ui: a view of the timeline, p95, CPU", pages["view_p95_ms"], 150.0, "ms"),
        Budget("sonde ui: list of 2,000 runs, CPU", pages["list_cpu_s"], 1.0, "s"),
        Budget("sonde ui: while nobody asks", 100 * pages["quiet_share"], 5.0, "% of a core"),
        Budget("sonde ui: peak memory", pages["peak_mb"], 350.0, "MB"),
    ]


def _of_following(found: dict[str, Any]) -> list[Budget]:
    return [
        Budget("sonde ui: recording to screen, p95", found["late_p95_s"], 1.0, "s"),
        Budget("sonde ui: server while a page follows a run", 100 * found["open_share"], 5.0, "% of a core"),
    ]


def _of_launching(found: dict[str, Any]) -> list[Budget]:
    run, watch = found["run"], found["watch"]
    return [
        Budget("processes beside the program, sonde run", run["processes"], 1.0, "processes"),
        Budget("memory beside the program, sonde run", run["rss_mb"], 40.0, "MB"),
        Budget("memory beside the program, sonde watch", watch["rss_mb"], 100.0, "MB"),
        Budget("memory while a verdict is made", watch["most_rss_mb"], 200.0, "MB"),
        Budget("CPU beside the program, sonde watch", watch["cpu_percent"], 5.0, "% of a core"),
        Budget("first screen of watch after the first step", watch["first_screen_s"], 2.0, "s"),
    ]


def _of_faults(faults: dict[str, Any]) -> list[Budget]:
    return [
        Budget("fault suite, wrong verdicts", 100 * (1 - faults["right"] / faults["trials"]), 5.0, "%"),
        Budget("fault suite, false criticals", float(faults["false_criticals"]), 0.0, "cases"),
    ]


def _of_provider(provider: dict[str, Any]) -> list[Budget]:
    peaks = provider["peak_mb"]
    return [
        Budget("provider + collate, per item", provider["ratio"], 1.3, "x bare getters and np.stack"),
        Budget("peak memory, 200 k items over 10 k", _ratio(peaks["200000"], peaks["10000"]), 1.1, "x"),
    ]


def _of_infer(infer: dict[str, Any]) -> list[Budget]:
    return [
        Budget("infer of a tiny model", infer["infer_over_hand"], 1.15, "x a loop by hand"),
        Budget("import sonde.pipeline", infer["pipeline_over_torch"], 1.15, "x import torch"),
    ]


def _of_exchange(found: dict[str, Any]) -> list[Budget]:
    peaks = {
        name: [one["peak_mb"] for one in found["exports"] if one["format"] == name] for name in ("perfetto", "otlp")
    }
    return [
        *(
            Budget(f"import, {one['format']}", _ratio(1.0, one["speed"]), 0.667, "x json.loads")
            for one in found["imports"]
        ),
        *(Budget(f"import, {one['format']}, peak memory", one["peak_mb"], 300.0, "MB") for one in found["imports"]),
        *(
            Budget(f"export to {name}, memory of 4x the events", _ratio(more, less), 1.3, "x")
            for name, (less, more) in peaks.items()
        ),
        *(Budget(f"a step beside {one['tracker']}", one["added_us"], 5.0, "µs") for one in found["trackers"]),
    ]


def _times(one: dict[str, Any]) -> float | None:
    return None if "missing" in one else 1 + one["added_us"] / one["bare_us"]


LARGE = 1000  # ranks
WATCH = {"MLP": 1.08, "CNN": 1.05, "transformer": 1.05}
OPTIONS = {"--fingerprint 1": 1.15}  # 1.02 for the others
PROGRAMS = {"run": 1.03, "deep": 1.10, "blackbox and watch": 1.08, "io": 1.05}
BUDGETS: dict[str, Callable[[Any], list[Budget]]] = {
    "spans": _of_spans,
    "reading": _of_reading,
    "values": _of_values,
    "importing": _of_importing,
    "steps": _of_steps,
    "feeding": _of_feeding,
    "deep": _of_deep,
    "blackbox": _of_blackbox,
    "options": _of_options,
    "programs": _of_programs,
    "items": _of_items,
    "ledger": _of_ledger,
    "report": _of_report,
    "scale": _of_scale,
    "pages": _of_pages,
    "following": _of_following,
    "launching": _of_launching,
    "faults": _of_faults,
    "provider": _of_provider,
    "infer": _of_infer,
    "exchange": _of_exchange,
}
