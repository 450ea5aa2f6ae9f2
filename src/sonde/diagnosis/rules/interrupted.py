"""INTERRUPTED: the run was stopped with Ctrl-C."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from sonde.diagnosis.evidence import finding
from sonde.diagnosis.figures import Figure
from sonde.diagnosis.rules.killed import signal_of
from sonde.finding import INFO, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def interrupted(facts: Facts, _policy: Policy) -> Finding | None:
    """A process was stopped with Ctrl-C (SIGINT). Interrupted loads are not counted."""
    found = [end for end in facts.ends.processes if end.worker is None and signal_of(end) == signal.SIGINT]
    if not found:
        return None
    first = found[0]
    place = "" if first.place is None else f" at {first.place}"
    return finding(
        "INTERRUPTED",
        INFO,
        1.0,
        f"{first.who[:1].upper()}{first.who[1:]} was stopped with Ctrl-C{place}.",
        "Nothing to do; `sonde report` shows the run up to that point.",
        figures={"signal": Figure(first.signal if first.signal is not None else first.exit_code, first.query)},
        signal=int(signal.SIGINT),
        ranks=sorted({end.rank for end in found if end.rank is not None}),
        processes=[end.process for end in found],
    )
