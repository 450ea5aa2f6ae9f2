"""The budgets of the recorder, and whether a result keeps them. A miss is printed as a miss."""

from __future__ import annotations

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
    """Every budget, in the order of the table in the README."""
    spans, reading, importing = results["spans"], results["reading"], results["importing"]
    floor, call = spans["floor_ns"], spans["call_ns"]
    core = "sonde (C core)"
    values = results["values"]
    megabyte = next(row for row in values["sizes"] if row["size"] == "1 MB")
    update = _ns(spans, core, "on", "ai.update(step)")
    return [
        Budget("decorator, on", _ratio(_ns(spans, core, "on", "decorator"), floor), 2.5, "x two C clock reads"),
        Budget("with, on", _ratio(_ns(spans, core, "on", "with"), floor), 4.0, "x two C clock reads"),
        Budget("decorator, off", _ratio(_ns(spans, core, "off", "decorator"), call), 1.5, "x an empty call"),
        Budget("with, off", _ratio(_ns(spans, core, "off", "with"), call), 5.0, "x an empty call"),
        Budget("ai.update(step=)", update, 200.0, "ns"),
        Budget("sealed size", reading["sealed_bytes_per_event"], 7.0, "bytes/event"),
        Budget("read raw, CPU", reading["read_raw"]["cpu_s"], 2.0, "s"),
        Budget("read raw, peak memory", reading["read_raw"]["peak_mb"], 600.0, "MB"),
        Budget("read sealed, CPU", reading["read_sealed"]["cpu_s"], 2.0, "s"),
        Budget("read sealed, peak memory", reading["read_sealed"]["peak_mb"], 600.0, "MB"),
        Budget("describe 1 MB float32", _ratio(megabyte["sonde_us"], megabyte["read_us"]), 4.0, "x one read of it"),
        Budget("describe and print a batch of 32 images", values["print_ms"], 50.0, "ms"),
        Budget("traced function, no trace", _ratio(values["idle_ns"], values["call_ns"]), 1.5, "x an empty call"),
        Budget("import sonde", importing["import_ms"], 40.0, "ms CPU"),
        Budget("modules of others at import", float(len(importing["third_party"])), 0.0, "modules"),
        *_of_training(results),
        *_of_pipeline(results["provider"], results["infer"]),
    ]


def _of_training(results: dict[str, Any]) -> list[Budget]:
    steps, report, faults = results["steps"], results["report"], results["faults"]
    items = next(row for row in results["items"]["rows"] if row["batch"] == 32)
    ledger = results["ledger"]
    return [
        Budget("all phases of an MLP step", _share(steps["sonde"]["MLP"]), 5.0, "% of the step"),
        *_of_feeding(results["feeding"]),
        Budget("trace_step, MLP step", _share(steps["sonde trace_step"]["MLP"]), 5.0, "% of the step"),
        Budget("deep, 12-layer encoder", _share(results["deep"]["sonde deep"]), 10.0, "% of the step"),
        *(
            Budget(
                f"{name.removeprefix('+ ')}, {model}", _share(results["blackbox"][name][model]), 5.0, "% of the step"
            )
            for name in ("+ watch", "+ black box", "+ black box + watch")
            for model in ("MLP", "CNN", "transformer")
        ),
        Budget("an item in a loader worker, batch of 32", items["added_ns"], 1000.0, "ns"),
        Budget("writing a batch of 64 into the ledger", ledger["write_ns"], 2000.0, "ns"),
        Budget("making the order of 1.28 million items again", ledger["order_s"], 1.0, "s CPU"),
        *(
            Budget(f"sealed ledger, {row['dataset']:,} items, {row['sampler']}", row["bytes"], 2.0, "bytes/item")
            for row in ledger["rows"]
        ),
        Budget("report of a long training, CPU", report["long"]["cpu_s"], 5.0, "s"),
        Budget("report of a long training, peak memory", report["long"]["peak_mb"], 600.0, "MB"),
        Budget("the same, sealed, CPU", report["long_sealed"]["cpu_s"], 5.0, "s"),
        Budget("the same, sealed, peak memory", report["long_sealed"]["peak_mb"], 600.0, "MB"),
        Budget("report of 200 steps, from command to card", report["short_s"], 1.0, "s"),
        Budget("page of 10,000 steps", report["page_kb"], 500.0, "kB"),
        *_of_launching(results["launching"]),
        Budget("fault suite, wrong verdicts", 100 * (1 - faults["right"] / faults["trials"]), 5.0, "%"),
        Budget("fault suite, false criticals", float(faults["false_criticals"]), 0.0, "cases"),
    ]


def _of_feeding(found: dict[str, Any]) -> list[Budget]:
    """A batch that is there already is a phase like any other; each item that a loader makes may take a microsecond more."""
    ready = [name for name in found if name.startswith("ready")]
    return [
        *(Budget(f"the same, with {name} from a loader", _share(found[name]), 5.0, "% of the step") for name in ready),
        *(
            Budget(f"the same, with {name} from a loader", one.get("added_us"), 32 + 0.05 * one.get("bare_us", 0), "µs")
            for name, one in found.items()
            if name not in ready
        ),
    ]


def _of_launching(found: dict[str, Any]) -> list[Budget]:
    run, watch = found["run"], found["watch"]
    return [
        Budget("processes beside the program, sonde run", run["processes"], 1.0, "processes"),
        Budget("memory beside the program, sonde run", run["rss_mb"], 40.0, "MB"),
        Budget("memory beside the program, sonde watch", watch["rss_mb"], 120.0, "MB"),
        Budget("the same, libraries that are shared counted once", watch["pss_mb"], 120.0, "MB"),
        Budget("memory while a verdict is made", watch["most_rss_mb"], 120.0, "MB"),
        Budget("the same, libraries that are shared counted once", watch["most_pss_mb"], 120.0, "MB"),
        Budget("CPU beside the program, sonde watch", watch["cpu_percent"], 5.0, "% of a core"),
        Budget("first screen of watch after the first step", watch["first_screen_s"], 2.0, "s"),
    ]


def _share(one: dict[str, Any]) -> float | None:
    return None if "missing" in one else 100 * one["added_us"] / one["bare_us"]


def _of_pipeline(provider: dict[str, Any], infer: dict[str, Any]) -> list[Budget]:
    peaks = provider["peak_mb"]
    growth = _ratio(peaks["200000"], peaks["10000"])
    return [
        Budget("provider + collate, per item", provider["ratio"], 1.3, "x bare getters and np.stack"),
        Budget("peak memory, 200 k items over 10 k", growth, 1.1, "x"),
        Budget("infer of a tiny model", infer["infer_over_hand"], 1.15, "x a loop by hand"),
        Budget("import sonde.pipeline", infer["pipeline_over_torch"], 1.15, "x import torch"),
    ]
