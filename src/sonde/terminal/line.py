"""One line about a running run, for pipes and logs."""

from __future__ import annotations

from sonde import units
from sonde.views.safe import printable
from sonde.views.watch import WatchView


def line(view: WatchView) -> str:
    """State, step, speed, step time with its percentiles and phases, memory: everything in one line."""
    head, times = view.headline, view.step_time
    facts = [
        units.duration(head.elapsed_ns),
        printable(head.word),
        f"step {units.count(head.step)}",
        f"{units.rate(head.steps_per_s)} steps/s",
        f"{units.rate(head.samples_per_s)} samples/s",
    ]
    if head.epoch is not None:
        facts.append(f"epoch {head.epoch}" + (f", batch {head.batch}/{head.batches}" if head.batches else ""))
    if head.loss is not None:
        facts.append(f"loss {units.brief(head.loss)}")
    if times.steps:
        points = ", ".join(f"{name} {units.duration(ns)}" for name, ns in _points(view) if ns is not None)
        facts.append(f"step time {points}")
        facts.append(", ".join(f"{part.name} {units.share(part.share)}" for part in times.parts))
    worst = next((rank for rank in view.ranks if rank.worst), None)
    if worst is not None:
        facts.append(f"slowest rank {worst.rank}: {units.duration(worst.p50_ns)}")
    used = sum(row.used or 0 for row in view.memory if row.limit is None)
    facts.append(f"memory {units.size(used) if used else units.MISSING}")
    if view.verdict is not None:
        age = "" if view.verdict.age_ns is None else f", {units.duration(view.verdict.age_ns)} ago"
        facts.append(f"{view.verdict.kind} ({view.verdict.severity}{age})")
    return "sonde: " + " | ".join(fact for fact in facts if fact)


def _points(view: WatchView) -> list[tuple[str, float | None]]:
    return [("p50", view.step_time.p50_ns), ("p95", view.step_time.p95_ns), ("p99", view.step_time.p99_ns)]
