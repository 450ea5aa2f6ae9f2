"""Data loading of a run: its loaders, the time to load a batch and an item, and the cost of starting workers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sonde.analysis.questions.items import LOADED, sampled, slow_items
from sonde.analysis.questions.loader import LoaderPipeline, loader_pipeline
from sonde.diagnosis.figures import Asker, Figures, literal
from sonde.store import probe

if TYPE_CHECKING:
    from sonde.analysis.run import Run
    from sonde.diagnosis.health import Health
    from sonde.diagnosis.policy import Policy
    from sonde.diagnosis.speed import Speed

MOST_ITEMS = 10  # that are listed
LITTLE = 0.1
READY = "(start_ns + wait_ns - made_ns)"  # how long a finished batch waited
_KEY = probe.key_columns("key")
_SPANS = f"kind = 'span' AND cat = '{probe.PROBE}' AND key IS NOT NULL AND NOT open"
# Many programs make a new loader for each epoch: those that look the same count as one.
_ITERS = f"""
    SELECT list(DISTINCT {_KEY["loader"]} ORDER BY {_KEY["loader"]}), try_cast(args->>'$.workers' AS BIGINT), args->>'$.batch_size',
           args->>'$.dataset', count(*) / count(DISTINCT process)
    FROM events WHERE kind = 'span' AND cat = '{probe.PROBE}' AND name = '{probe.ITER}' AND key IS NOT NULL
    GROUP BY args ORDER BY 1
"""
_AGAIN = f"""
    (SELECT i.process, i.dur_ns + coalesce(w.dur_ns, 0) AS cost FROM (
        SELECT process, key, dur_ns, row_number() OVER (PARTITION BY process, args ORDER BY start_ns) AS nth
        FROM events WHERE {_SPANS} AND name = '{probe.ITER}' AND try_cast(args->>'$.workers' AS BIGINT) > 0
    ) i LEFT JOIN (
        SELECT process, key, dur_ns FROM events WHERE {_SPANS} AND name = '{probe.INPUT_WAIT}' AND {_KEY["batch"]} = 0
    ) w USING (process, key) WHERE i.nth > 1)
"""


@dataclass(frozen=True)
class LoaderFacts:
    """A loader, or several that look the same, as they were iterated. None is not known."""

    numbers: list[int]
    workers: int | None
    batch_size: int | None
    dataset: str | None
    rounds: float


@dataclass(frozen=True)
class SlowItem:
    """An item that takes several times as long as others do. `index` of the dataset, or `id`."""

    index: int | None
    id: str | None
    workers: list[int]  # that loaded it; empty: the training process itself
    rank: int | None
    loads: int
    median_ns: float  # of its own loads
    most_ns: int
    query: str  # the median
    file: str | None = None  # that most of its bytes come from, where files were watched
    bytes: int | None = None


@dataclass(frozen=True)
class Loading:
    """All of it. What is about batches and items is only asked for where waiting for data matters."""

    loaders: list[LoaderFacts] = field(default_factory=list)
    main: LoaderFacts | None = None  # the one that training waits for the most
    batches: Figures = field(
        default_factory=lambda: Figures({}, {})
    )  # of that loader, for training: fetch, wait, collate
    items: Figures = field(default_factory=lambda: Figures({}, {}))
    slow_ns: float | None = None  # from then on an item is slow
    slow: list[SlowItem] = field(default_factory=list)
    startup: Figures = field(default_factory=lambda: Figures({}, {}))  # of workers, when a loader is iterated again


def gather_loaders(ask: Asker) -> list[LoaderFacts]:
    """The loaders that were iterated."""
    return [_loader(*row) for row in ask.rows(_ITERS)]


def gather_loading(ask: Asker, policy: Policy, speed: Speed, loaders: list[LoaderFacts]) -> Loading:
    """Ask about batches and items too, if training waits for them."""
    startup = _startup(ask) if any(one.workers and one.rounds > 1 for one in loaders) else Figures({}, {})
    if not _matters(policy, speed):
        return Loading(loaders, startup=startup)
    main = _main(ask, loaders)
    if main is None:
        return Loading(loaders, startup=startup)
    here = f"loader IN ({', '.join(map(str, main.numbers))})"
    source = f"batches WHERE purpose <> 'evaluate' AND {here}"
    batches = ask.one(source, {"count": "count(*)", "workers": "count(DISTINCT worker)", "mean_fetch": "avg(fetch_ns)"})
    some = sampled(source, batches["count"].or_zero(), "batch")
    parts = {part: f"median({part}_ns)" for part in ("fetch", "wait", "collate")}
    if main.workers != 0:
        parts |= {"ready": f"median({READY}) FILTER ({READY} >= 0)", "empty": "avg((made_ns > start_ns)::INTEGER)"}
    batches |= ask.one(some, parts)
    if main.workers is None:  # its iteration was not seen
        main = replace(main, workers=int(batches["workers"].or_zero()))
    return _with_items(ask, policy, Loading(loaders, main, batches, startup=startup))


def gather_pipeline(run: Run, policy: Policy, loading: Loading, health: Health) -> LoaderPipeline | None:
    """How batches come to the training; only where it waits for them."""
    if loading.main is None:
        return None
    return pipeline_of(run, policy, health, loading.main.numbers)


def pipeline_of(run: Run, policy: Policy, health: Health, loaders: list[int] | None = None) -> LoaderPipeline | None:
    """The same of these loaders, or of those that training waits for the most, with what is known of the hosts."""
    used = {}
    for host in health.hosts:
        cores = host.figures["cores"].or_zero()
        if cores and host.own.value:
            used[host.host] = host.own.value / 100 / cores
    return loader_pipeline(
        run,
        loaders,
        most_workers=_most_workers(health, policy),
        start_ns=1e6 * policy["input_bound.start_ms"],
        busy={str(row["process"]): used[row["host"]] for row in run.rows if row["host"] in used},
    )


def _most_workers(health: Health, policy: Policy) -> float:
    """Loading may wait for disks as well as compute, so that a few more workers than cores can help; many cannot."""
    cores = max((host.figures["cores"].or_zero() for host in health.hosts), default=0.0)
    most: float = policy["input_bound.most_workers"]
    return min(most, max(4.0, 2 * cores)) if cores else most


def _loader(
    numbers: list[int], workers: int | None, size: str | None, dataset: str | None, rounds: float
) -> LoaderFacts:
    return LoaderFacts(numbers, workers, int(size) if size and size.isdigit() else None, dataset, rounds)


def _matters(policy: Policy, speed: Speed) -> bool:
    waited, whole = speed.whole["input_wait"].or_zero(), speed.whole["whole"].or_zero()
    return whole > 0 and waited / whole >= policy["loading.share"] and waited >= 1e9 * policy["loading.least_s"]


def _main(ask: Asker, loaders: list[LoaderFacts]) -> LoaderFacts | None:
    found = ask.rows(
        "SELECT loader FROM batches WHERE purpose <> 'evaluate' AND loader IS NOT NULL "
        "GROUP BY 1 ORDER BY sum(wait_ns) DESC NULLS LAST, 1 LIMIT 1"
    )
    if not found:
        return None
    number = found[0][0]
    return next((one for one in loaders if number in one.numbers), LoaderFacts([number], None, None, None, 1.0))


def _startup(ask: Asker) -> Figures:
    """What iterating again costs: the call itself and the wait for the first batch; of the process that spends the most."""
    source = " ".join(_AGAIN.split())
    worst = ask.rows(f"SELECT process FROM {source} GROUP BY 1 ORDER BY sum(cost) DESC, 1 LIMIT 1")
    if not worst:
        return Figures({}, {})
    columns = {"total": "sum(cost)", "times": "count(*)", "each": "median(cost)"}
    return ask.one(f"{source} WHERE process = {literal(worst[0][0])}", columns)


def _with_items(ask: Asker, policy: Policy, loading: Loading) -> Loading:
    assert loading.main is not None
    loads = f"items WHERE loader IN ({', '.join(map(str, loading.main.numbers))}) AND {LOADED}"
    usual = ask.one(loads, {"count": "count(*)", "total": "sum(dur_ns)"})
    usual |= ask.one(sampled(loads, usual["count"].or_zero()), {"p50": "median(dur_ns)"})
    middle = usual["p50"].value
    if middle is None:
        return loading
    least = max(middle * policy["slow_items.times"], 1e6 * policy["slow_items.least_ms"])
    slow = slow_items(loads, least)
    ask.keep(slow, "slow_items", [*_SLOW.split(", ")], of="items")
    found = ask.one(
        slow,
        {
            "slow": "sum(loads)",
            "different": "count(*)",
            "lost": f"sum(total_ns - loads * {middle!r})",
            "slow_p50": "median(median_ns)",
        },
    )
    return replace(loading, items=Figures({}, {**usual, **found}), slow_ns=least, slow=_slow_items(ask, slow))


_SLOW = "index, id, workers, rank, loads, median_ns, most_ns, file, bytes, total_ns"


def _slow_items(ask: Asker, source: str) -> list[SlowItem]:
    """The ones that cost the most; not those that cost little beside the first of them."""
    found = ask.rows(f"SELECT {_SLOW} FROM {source} ORDER BY total_ns DESC, index, id LIMIT {MOST_ITEMS}")
    return [
        SlowItem(index, id, sorted(workers or []), rank, loads, median, most, _again(source, index, id), file, size)
        for index, id, workers, rank, loads, median, most, file, size, total in found
        if total >= LITTLE * found[0][-1]
    ]


def _again(source: str, index: int | None, id: str | None) -> str:
    which = f"index IS NOT DISTINCT FROM {literal(index)} AND id IS NOT DISTINCT FROM {literal(id)}"
    return f"SELECT median_ns FROM {source} AND {which}"
