"""The loader as a pipeline, of runs built with known times, and of one that is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from sonde.analysis.questions.ask import question
from sonde.analysis.questions.loader import HANDING, ITEMS, MODEL, START, LoaderPipeline, loader_pipeline
from sonde.analysis.run import open_run
from sonde.analysis.seal import seal
from sonde.analysis.sealing import part
from sonde.analysis.tables import batches
from sonde.store import probe
from sonde.testing import MS, START_NS, BuiltProcess, BuiltRecord, build_run


def built(
    folder: Path,
    *,
    count: int = 20,
    workers: int = 2,
    fetch: int = 10,
    transfer: int = 2,
    computing: int = 30,
    start: int = 0,
) -> Path:
    """A run whose loader works as torch's does; in ms. Batch n is made by worker n % workers, two ahead for each."""
    key = [probe.batch_key(0, 0, number) for number in range(count)]
    args = {"workers": workers, "prefetch": 2, "persistent": False, "batch_size": 4, "dataset": "Data"}
    main = [BuiltRecord(probe.ITER, probe.PROBE, start=START_NS, dur=start * MS, key=key[0], args=args)]
    loaders: list[list[BuiltRecord]] = [[] for _ in range(workers)]
    now, free = start, [start] * workers
    taken: list[int] = []
    for number in range(count):
        worker, asked = number % workers, now
        begun = max(free[worker], taken[number - 2 * workers] if number >= 2 * workers else start)
        free[worker] = begun + fetch
        loaders[worker].append(
            BuiltRecord(probe.FETCH, probe.PROBE, start=START_NS + begun * MS, dur=fetch * MS, key=key[number])
        )
        now = max(now, free[worker]) + transfer
        taken.append(now)
        wait = BuiltRecord(probe.INPUT_WAIT, probe.PROBE, start=START_NS + asked * MS, key=key[number], step=number)
        main.append(wait._replace(dur=(now - asked) * MS))
        main.append(
            BuiltRecord(probe.FORWARD, probe.PROBE, start=START_NS + now * MS, dur=computing * MS, key=3, step=number)
        )
        now += computing
        main.append(BuiltRecord(probe.UPDATE, probe.PROBE, kind=2, start=START_NS + now * MS, key=0, step=number))
    people = [
        BuiltProcess(some, 2000 + number, process={"role": "worker", "worker": number, "parent_pid": 1000})
        for number, some in enumerate(loaders)
    ]
    return build_run(folder, [BuiltProcess(main, 1000, process={"role": "trainer"}), *people])


def of(folder: Path) -> LoaderPipeline:
    with open_run(folder) as run:
        found = loader_pipeline(run)
    assert found is not None
    return found


def test_finished_batches_wait_for_a_slow_model(tmp_path: Path) -> None:
    """Four batches lie ready while the model takes 32 ms for each: a batch waits for four steps, less its own making."""
    found = of(built(tmp_path / "run"))
    assert found.ready_ns == pytest.approx((4 * 32 - 10) * MS)
    assert found.empty == 1 / 20  # only the first request
    assert found.depth is not None
    assert max(found.depth.ready) == pytest.approx(4.0, abs=0.5)
    assert found.limit == MODEL


def test_what_is_simulated_is_what_was_recorded(tmp_path: Path) -> None:
    """The recorded setting comes out as it was, and then others are told too."""
    for workers, fetch in ((1, 50), (2, 10), (3, 100)):
        found = of(built(tmp_path / str(workers), workers=workers, fetch=fetch))
        assert found.error == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("times", "limit"),
    [
        ({"fetch": 100}, ITEMS),
        ({"fetch": 5, "transfer": 60}, HANDING),
        ({"fetch": 5, "start": 2000, "computing": 5}, START),
    ],
)
def test_the_stage_that_limits_is_named(tmp_path: Path, times: dict[str, int], limit: str) -> None:
    """The one without which training would be the fastest."""
    assert of(built(tmp_path / "run", **times)).limit == limit


def test_more_workers_are_told_until_the_model_limits(tmp_path: Path) -> None:
    """Batches of 100 ms beside 32 ms of the rest: 4 workers hide them, and 8 bring no more."""
    found = of(built(tmp_path / "run", count=200, fetch=100, workers=1))
    assert found.better is not None
    assert found.better.workers == 4
    assert found.better.speedup == pytest.approx(100 / 32, rel=0.05)


def test_no_setting_is_faster_than_the_cores_allow(tmp_path: Path) -> None:
    """A run that uses two thirds of the cores becomes at most half as fast again."""
    with open_run(built(tmp_path / "run", count=200, fetch=100, workers=1)) as run:
        found = loader_pipeline(run, busy={"testhost-1000-0": 2 / 3})
    assert found is not None
    assert max(one.speedup for one in found.settings) == pytest.approx(1.5)


def test_a_run_without_batches_has_no_pipeline(tmp_path: Path) -> None:
    """Nothing is made up."""
    with open_run(build_run(tmp_path / "run")) as run:
        assert loader_pipeline(run) is None


def test_the_question_tells_stages_and_queue(tmp_path: Path) -> None:
    """`sonde ask loader`: one row for the loader."""
    with open_run(built(tmp_path / "run")) as run:
        found = run.sql(question("loader").query())
        row = dict(zip(found.columns, found.fetchall()[0], strict=True))
    assert (row["workers"], row["batches"], row["transfer_ns"], row["computing_ns"]) == (2, 20, 2 * MS, 30 * MS)
    assert row["ready_ns"] == (4 * 32 - 10) * MS


def test_a_sealed_run_gives_the_same(tmp_path: Path) -> None:
    """All of it comes from tables."""
    folder = built(tmp_path / "run", fetch=40)
    before = of(folder)
    seal(folder)
    assert of(folder) == before


def test_parts_that_were_sealed_before_have_no_moment_of_finishing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read as they are: what they lack is null."""
    folder = built(tmp_path / "run")
    with monkeypatch.context() as patch:
        columns = ", ".join(name for name in batches.SEALED[1:] if name not in batches.LATER)
        patch.setitem(part._MADE, "batches", f"SELECT {columns} FROM {batches.ROWS}")
        seal(folder)
    with open_run(folder) as run:
        assert run.sql("SELECT count(*), count(made_ns), sum(fetch_ns) FROM batches").fetchall() == [(20, 0, 200 * MS)]
        assert loader_pipeline(run) is None
