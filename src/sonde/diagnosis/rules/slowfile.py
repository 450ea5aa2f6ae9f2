"""SLOW_FILE: a few files are read slowly, and training waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import finding
from sonde.diagnosis.files import named
from sonde.finding import CRITICAL, WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def slow_file(facts: Facts, policy: Policy) -> Finding | None:
    """A few files are read many times more slowly than the others, and training waits for them. Needs `--io`."""
    files, whole = facts.files, facts.speed.whole["whole"].or_zero()
    loads, usual = files.items["count"].or_zero(), files.usual["p50"].or_zero()
    if not files.slow or not whole or not loads:
        return None
    waited = facts.speed.whole["input_wait"]
    excess = sum(one.total_ns - one.loads * usual for one in files.slow)
    each = excess / max(1, len(facts.speed.ranks))
    cost = min(waited.or_zero(), each) / whole
    few = sum(one.loads for one in files.slow) / loads <= policy["slow_file.most_share"]
    if not few or cost < policy["slow_file.warn_share"] or each < 1e9 * policy["slow_file.least_s"]:
        return None
    first = files.slow[0]
    rate = units.size(first.bytes / max(first.median_ns, 1) * 1e9)
    usually = units.size(files.usual["rate"].or_zero() * 1e9)
    return finding(
        "SLOW_FILE",
        CRITICAL if cost >= policy["slow_file.critical_share"] else WARN,
        0.9 if first.loads > 1 else 0.8,
        f"{units.plural(len(files.slow), 'file is read', 'files are read')} slowly. Slowest: {named(first.path, first.bytes, None)} takes "
        f"{units.duration(first.median_ns)} at {rate}/s; other files are read at {usually}/s.",
        f"Check the storage of {first.path}, or copy it to a local disk.",
        score=cost,
        figures={
            "median read ns": files.usual["p50"],
            "median bytes per ns": files.usual["rate"],
            "loads": files.items["count"],
            "waiting for data ns": waited,
            "total time ns": facts.speed.whole["whole"],
        },
        files=[
            {"file": one.path, "loads": one.loads, "bytes": one.bytes, "median_ns": one.median_ns, "query": one.query}
            for one in files.slow
        ],
    )
