"""KILLED: a process was ended by a signal."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import finding
from sonde.diagnosis.exits import End
from sonde.diagnosis.figures import Figure
from sonde.diagnosis.health import Host
from sonde.finding import CRITICAL, WARN, Finding
from sonde.store.alive import DIED, TERMINATED

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


SHELL = 128  # a shell that saw death by signal n ends with 128 + n
ASKED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def killed(facts: Facts, policy: Policy) -> Finding | None:
    """A process was killed by a signal or vanished without a trace. For SIGKILL: whether memory had run out."""
    found = [end for end in facts.ends.processes if _ended_so(end)]
    if any(signal_of(end) == signal.SIGINT and end.worker is None for end in found):
        # After Ctrl-C whoever starts ranks asks them all to end.
        found = [end for end in found if signal_of(end) not in ASKED]
    if not found:
        return None
    # Who starts ranks ends the others when one is gone: the first that was not asked to end is the cause.
    first = next((end for end in found if signal_of(end) not in ASKED), found[0])
    number = signal_of(first)
    if number == signal.SIGKILL or number is None:
        return _without_asking(facts, policy, first, number)
    return finding(
        "KILLED",
        WARN if number in ASKED else CRITICAL,
        1.0,
        f"{_capital(first.who)} was killed by {signal_name(number)}.",
        _NEXT.get(number, "Check the last lines of its output, and the native code it calls."),
        failure=True,
        figures={"signal": Figure(first.signal if first.signal is not None else first.exit_code, first.query)},
        signal=number,
        memory=None,
        ranks=[] if first.rank is None else [first.rank],
        processes=[first.process],
    )


_NEXT: dict[int, str] = {
    signal.SIGHUP: "Start it so that it survives its terminal: with nohup, tmux or the scheduler.",
    signal.SIGTERM: "Find out what stopped it: a scheduler at its time limit, a stopped container, or another rank.",
    signal.SIGBUS: "Enlarge /dev/shm (--shm-size of a container), or use fewer loader workers.",
    signal.SIGSEGV: "Start it with python -X faulthandler to see which native call crashed.",
    signal.SIGABRT: "Read the last lines of its output: the library that aborted gives its reason there.",
}


def _without_asking(facts: Facts, policy: Policy, end: End, number: int | None) -> Finding:
    host = next((one for one in facts.health.hosts if one.host == end.host), None)
    full = None if host is None else _filled(host)
    out = full is not None and full[0] >= policy["killed.memory_share"]
    how = (
        "was killed by signal 9 (SIGKILL)"
        if number
        else "ended without a recorded reason, as after SIGKILL or os._exit()"
    )
    memory = "Its memory use at that time is unknown"
    if full is not None:
        memory = (
            f"{units.share(full[0])} of the memory ({units.size(full[1].value)} of {units.size(full[2].value)}) was in use "
            "at the last sample"
        )
    return finding(
        "KILLED",
        CRITICAL,
        0.95 if number and full is not None else 0.6,
        f"{_capital(end.who)} {how}. {memory}: {'it ran out of memory' if out else 'probably not out of memory'}."
        if full is not None
        else f"{_capital(end.who)} {how}. {memory}.",
        "Use less memory (fewer loader workers, smaller batches or caches), or request more."
        if out
        else "Find out what killed it: the scheduler, a container limit or a person. The kernel log lists kills by "
        "the kernel.",
        failure=True,
        figures={
            "signal": Figure(end.signal if end.signal is not None else end.exit_code, end.query),
            **({} if full is None else {"used": full[1], "limit": full[2]}),
        },
        signal=number,
        memory=None if full is None else out,
        ranks=[] if end.rank is None else [end.rank],
        processes=[end.process],
    )


def _filled(host: Host) -> tuple[float, Figure, Figure] | None:
    """How full the host or its control group was at the last look; the fuller one."""
    found = []
    for used, limit in (("ram_last", "ram_total"), ("used_last", "limit")):
        last, most = host.figures[used], host.figures[limit]
        if last.value is not None and most.value:
            found.append((last.value / most.value, last, most))
    return max(found, key=lambda one: one[0], default=None)


def signal_of(end: End) -> int | None:
    """The signal that ended a process; None if it is not known, or there was none."""
    if end.signal is not None:
        return end.signal
    if end.exit_code is not None and SHELL < end.exit_code <= SHELL + 64:
        return end.exit_code - SHELL
    return int(signal.SIGINT) if end.exception == "KeyboardInterrupt" else None


def _ended_so(end: End) -> bool:
    if end.reason == TERMINATED:  # a pool that is left ends its processes so, and so does a program with its own
        return False
    number = signal_of(end)
    if end.worker is not None:  # torch ends workers that are no longer needed
        return number is not None and number not in ASKED
    if number is not None:
        return True
    has_end = end.exit_code is not None or end.exception is not None
    return end.state == DIED and not has_end and end.role != "launcher"


def signal_name(number: int) -> str:
    """`signal 9 (SIGKILL)`."""
    known = {one.value: one.name for one in signal.Signals}
    return f"signal {number} ({known[number]})" if number in known else f"signal {number}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
