"""What a run does to its host: memory and its trend, limits, threads and cores, garbage collection; and its losses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.figures import NOTHING, Asker, Figure, Figures, literal
from sonde.store import probe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sonde.diagnosis.policy import Policy

PARTS = 10  # of the time of a process, to see whether its memory grows
MOST_PROCESSES = 32  # whose memory is looked at, the largest
SAMPLED_NS = 1_000_000_000  # a load is that of the second before it was written down
_EVER = 2**63 - 1
_RSS = (
    "(SELECT host, coalesce(key, pid) AS about, value, start_ns, "
    f"ntile({PARTS}) OVER (PARTITION BY host, coalesce(key, pid) ORDER BY start_ns) - 1 AS part "
    f"FROM events WHERE kind = 'counter' AND cat = '{probe.MEMORY}' AND name = '{{name}}' AND isfinite(value) "
    "AND start_ns >= {since} AND start_ns <= {until})"
)
_SYSTEM = f"events WHERE kind = 'counter' AND cat = '{probe.SYSTEM}' AND isfinite(value)"
_DELAYS = (
    f"SELECT host, key, median(value) FROM {_SYSTEM} AND name = 'cpu.delay' AND start_ns >= {{since}} AND start_ns <= {{until}} "
    "GROUP BY ALL"
)
_HOST = {
    "ram_total": "max(value) FILTER (name = 'ram.total')",
    "ram_used": "quantile_cont(value, 0.9) FILTER (name = 'ram.used')",
    "ram_last": "arg_max(value, start_ns) FILTER (name = 'ram.used')",
    "limit": "min(value) FILTER (name = 'cgroup.limit')",
    "used": "quantile_cont(value, 0.9) FILTER (name = 'cgroup.used')",
    "used_last": "arg_max(value, start_ns) FILTER (name = 'cgroup.used')",
    "cores": "max(value) FILTER (name = 'cores')",
}


@dataclass(frozen=True)
class Trend:
    """The memory of one process over its time. `parts`: the median in each tenth of it, in bytes."""

    host: str
    pid: int
    rank: int | None
    worker: int | None
    what: str  # "rss", or "device.allocated"
    samples: int
    seconds: float
    first: Figure  # in the third tenth: by then a program has loaded what it needs
    last: Figure  # in the last tenth
    most: Figure
    parts: list[float]


@dataclass(frozen=True)
class Host:
    """One machine, and what its processes of this run use together nine tenths of the time, in bytes."""

    host: str
    figures: Figures
    rss: Figure
    threads: Figure  # that torch computes with, in all processes that are no loader workers
    most_threads: Figure  # in one process
    own: Figure  # load of the processes of this run together, in % of one core
    delay: Figure  # how long the one that waits longest for a core does so, in % of one core

    @property
    def others(self) -> float | None:
        """Load of the processes that are not of this run, in % of the host."""
        load, cores = self.figures["cpu"].value, self.figures["cores"].value
        return None if load is None or not cores or self.own.value is None else load - self.own.value / cores

    @property
    def loads(self) -> dict[str, Figure]:
        """What that was made of."""
        return {
            "load of the host %": self.figures["cpu"],
            "cores": self.figures["cores"],
            "load of this run %": self.own,
            "waiting for a core %": self.delay,
        }

    @property
    def load_sentence(self) -> str:
        """Who takes its cores, in words."""
        return f"other programs use {units.share((self.others or 0.0) / 100)} of the cores of {self.host}, and none is idle"

    def crowded(self, policy: Policy) -> bool:
        """Whether processes of others take so much of it that those of this run wait for cores."""
        busy = self.figures["cpu"].at_least(policy["host.busy"])
        waits = self.delay.value is None or self.delay.value >= policy["host.delay"]
        return busy and waits and self.others is not None and self.others >= policy["host.others"]


@dataclass(frozen=True)
class LossFacts:
    """What the losses say. `first`: the first step with a loss that is no number; None: there is none."""

    seen: Figure = NOTHING
    bad: Figure = NOTHING
    first: Figure = NOTHING
    last_bad: Figure = NOTHING  # of the last ten losses, so many
    rank: int | None = None


@dataclass(frozen=True)
class Health:
    """All of it."""

    memory: list[Trend] = field(default_factory=list)
    hosts: list[Host] = field(default_factory=list)
    losses: LossFacts = field(default_factory=LossFacts)
    garbage: Figures = field(default_factory=lambda: Figures({}, {}))
    delays: dict[tuple[str, int], float] = field(
        default_factory=dict
    )  # by host and pid: waiting for a core, in % of one

    def crowded_host(self, policy: Policy) -> Host | None:
        """A host of this run whose cores processes of others take."""
        return next((host for host in self.hosts if host.crowded(policy)), None)

    def crowded(self, policy: Policy) -> bool:
        """Whether there is one: then scatter between steps and ranks, and short waits, are not this run's fault."""
        return self.crowded_host(policy) is not None


def gather_health(ask: Asker, policy: Policy, trained: bool) -> Health:
    """Ask about memory, threads and losses. `trained`: there are steps."""
    since, until = 0, _EVER
    if trained:  # a program loads what it needs before its first step, and frees it after the last
        ((since, until),) = ask.rows("SELECT min(start_ns + dur_ns), max(start_ns + dur_ns) FROM steps")
    return Health(
        memory=_memory(ask, policy, since, until),
        hosts=_hosts(ask, since, min(until + SAMPLED_NS, _EVER)),
        losses=_losses(ask)
        if trained and any(ask.seen(cat, (probe.LOSS,)) for cat in (probe.PROBE, probe.LOG))
        else LossFacts(),
        garbage=_garbage(ask) if trained and ask.seen(probe.PROBE, (probe.GC,)) else Figures({}, {}),
        delays={(host, pid): delay for host, pid, delay in ask.rows(_DELAYS.format(since=since, until=until))},
    )


def _memory(ask: Asker, policy: Policy, since: int, until: int) -> list[Trend]:
    people = {
        (host, pid): (rank, worker)
        for host, pid, rank, worker, role in ask.rows("SELECT host, pid, rank, worker, role FROM processes")
        if role != "launcher"
    }
    found = []
    for name in ("rss", "device.allocated"):
        source = _RSS.format(name=name, since=since, until=until)
        largest = ask.rows(
            f"SELECT host, about, count(*), (max(start_ns) - min(start_ns)) / 1e9 FROM {source} GROUP BY ALL "
            f"HAVING count(*) >= {int(policy['memory_creep.samples'])} ORDER BY max(value) DESC LIMIT {MOST_PROCESSES}"
        )
        found += [
            _trend(ask, source, name, (host, pid), people[host, pid], samples, seconds)
            for host, pid, samples, seconds in largest
            if (host, pid) in people
        ]
    return found


def _trend(
    ask: Asker,
    source: str,
    name: str,
    who: tuple[str, int],
    place: tuple[int | None, int | None],
    samples: int,
    seconds: float,
) -> Trend:
    here = f"{source} WHERE host = {literal(who[0])} AND about = {who[1]}"
    columns = {str(part): f"median(value) FILTER (part = {part})" for part in range(PARTS)}
    figures = ask.one(here, columns | {"most": "max(value)"})
    peak = f"{_SYSTEM} AND name = 'rss.peak' AND host = {literal(who[0])} AND key = {who[1]}"
    ever = ask.one(peak, {"most": "max(value)"})["most"] if name == "rss" else NOTHING
    parts = [figures[str(part)].or_zero() for part in range(PARTS)]
    first, last = figures["2"], figures[str(PARTS - 1)]
    return Trend(
        *who, *place, name, samples, seconds, first, last, figures["most"] if ever.value is None else ever, parts
    )


def _hosts(ask: Asker, since: int, until: int) -> list[Host]:
    """What each host has, and its load while the run trained."""
    then = f"start_ns >= {since} AND start_ns <= {until} AND name = "
    columns = _HOST | {"cpu": f"median(value) FILTER ({then}'cpu' AND coalesce(key, 0) = 0)"}
    rows = ask.by(["host"], _SYSTEM.partition(" WHERE ")[0], columns, _SYSTEM.partition(" WHERE ")[2])
    tables = [_by_host(ask, source, columns) for source, columns in _of_hosts(then)]
    return [_host(row, *(table.get(str(row.which["host"]), Figures({}, {})) for table in tables)) for row in rows]


def _of_hosts(then: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Sources with a column `host`, each asked once for all of them, and what is asked of them."""
    last = (
        f"(SELECT host, quantile_cont(value, 0.9) AS value, max(start_ns) AS latest FROM events WHERE kind = 'counter' "
        f"AND cat = '{probe.MEMORY}' AND name = 'rss' AND isfinite(value) GROUP BY host, coalesce(key, pid))"
    )
    # Of processes that were there to the end: a worker of an earlier epoch has no memory any more.
    alive = f"(SELECT * FROM {last} QUALIFY latest >= max(latest) OVER (PARTITION BY host) - 3000000000)"
    yield alive, {"rss": "sum(value)"}
    computing = (
        f"(SELECT e.host AS host, coalesce(e.key, e.pid) AS about, arg_max(e.value, e.start_ns) AS threads FROM events e JOIN processes p "
        f"ON p.host = e.host AND p.pid = coalesce(e.key, e.pid) WHERE e.cat = '{probe.SYSTEM}' "
        "AND e.name = 'torch.threads' AND (p.worker IS NULL OR e.value > 1) AND p.role <> 'launcher' GROUP BY ALL)"
    )
    yield computing, {"all": "sum(threads)", "most": "max(threads)"}
    # Second by second: workers of an earlier epoch take no core any more.
    each = f"SELECT host, start_ns // 1000000000 AS second, key, avg(value) AS load FROM {_SYSTEM} AND {then}'cpu' AND key > 0 GROUP BY ALL"
    yield f"(SELECT host, second, sum(load) AS load FROM ({each}) GROUP BY ALL)", {"own": "median(load)"}
    waits = f"(SELECT host, median(value) AS delay FROM {_SYSTEM} AND {then}'cpu.delay' GROUP BY host, key)"
    yield waits, {"delay": "max(delay)"}


def _by_host(ask: Asker, source: str, columns: dict[str, str]) -> dict[str, Figures]:
    return {str(row.which["host"]): row for row in ask.by(["host"], source, columns)}


def _host(row: Figures, alive: Figures, computing: Figures, load: Figures, waits: Figures) -> Host:
    return Host(
        str(row.which["host"]), row, alive["rss"], computing["all"], computing["most"], load["own"], waits["delay"]
    )


def _losses(ask: Asker) -> LossFacts:
    figures = ask.one(
        "steps WHERE loss IS NOT NULL",
        {
            "seen": "count(DISTINCT step)",
            "bad": "count(DISTINCT step) FILTER (NOT isfinite(loss))",
            "first": "min(step) FILTER (NOT isfinite(loss))",
        },
    )
    if not figures["bad"].or_zero():
        return LossFacts(figures["seen"], figures["bad"])
    last = "(SELECT loss FROM steps WHERE loss IS NOT NULL ORDER BY start_ns DESC LIMIT 10) WHERE NOT isfinite(loss)"
    rank = ask.rows("SELECT rank FROM steps WHERE loss IS NOT NULL AND NOT isfinite(loss) ORDER BY step, rank LIMIT 1")
    last_bad = ask.one(last, {"bad": "count(*)"})["bad"]
    return LossFacts(figures["seen"], figures["bad"], figures["first"], last_bad, rank[0][0])


def _garbage(ask: Asker) -> Figures:
    """Collections in the threads that train, after the warm-up."""
    columns = {
        "total": "sum(gc_ns)",
        "share": "sum(gc_ns) / nullif(sum(dur_ns), 0)",
        "steps": "count(gc_ns) FILTER (gc_ns > 0)",
        "most": "max(gc_ns)",
        "each": "avg(gc_ns) FILTER (gc_ns >= 1000000)",
    }
    return ask.one("steps WHERE NOT warmup", columns)
