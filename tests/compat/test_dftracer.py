"""DFTracer's names: what they record, when the file is written, and the faults that are not repeated."""

from __future__ import annotations

import gzip
import json
import signal
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sonde.analysis.run import open_run

if TYPE_CHECKING:
    from tests.compat.conftest import Program

START = """
    import os, sys, time, threading
    from sonde.compat.dftracer import dftracer, ai, dft_fn, DFTracerAI
    log = dftracer.initialize_log("trace.pfw", None, -1)
"""


def shape(lines: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Category and name of the spans and marks, in the order of entry."""
    found = sorted((line for line in lines if line["ph"] == "X"), key=lambda line: int(line["id"]))
    return [(line["cat"], line["name"]) for line in found]


def arguments(lines: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The arguments of the events of this name, without those that every line has."""
    found = sorted((line for line in lines if line["name"] == name), key=lambda line: int(line["id"]))
    return [
        {key: value for key, value in line["args"].items() if key not in ("hhash", "p_idx", "level")} for line in found
    ]


# ── the file ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise ValueError('mine')"], ids=["return", "exit", "exception"])
def test_a_forgotten_finalize_happens_at_the_end(program: Program, end: str) -> None:
    """However the program ends; its exit code is its own."""
    code = 3 if "exit" in end else 1 if end else 0
    lines = program(START + f"\n    with ai.compute.forward: pass\n    {end}\n", code=code)
    assert shape(lines) == [("compute", "forward")]


def test_after_a_kill_the_run_folder_has_every_event(program: Program, tmp_path: Path) -> None:
    """The `.pfw` file could not be written; the events are there."""
    text = START + "\n    for _ in range(1000):\n        with ai.compute.forward: pass\n    os.kill(os.getpid(), 9)\n"
    assert program(text, code=-signal.SIGKILL) == []
    (run,) = (tmp_path / "sonde-runs").iterdir()
    assert open_run(run).sql("select count(*) from events where name = 'forward' and not open").fetchall() == [(1000,)]


def test_a_single_event_is_kept(program: Program) -> None:
    """No file is too small."""
    assert shape(program(START + "\n    with ai.compute.forward: pass\n    log.finalize()\n")) == [
        ("compute", "forward")
    ]


def test_finalize_twice_and_events_after_it_are_harmless(program: Program) -> None:
    """What comes after the first one is not recorded."""
    lines = program(
        START
        + """
    with ai.compute.forward: pass
    log.finalize()
    with ai.compute.backward: pass
    log.finalize()
    dftracer.get_instance().finalize()
    """
    )
    assert shape(lines) == [("compute", "forward")]


def test_a_log_can_be_started_again(program: Program, tmp_path: Path) -> None:
    """Two logs, one after the other, in one process: each has its own events."""
    first = program(
        START
        + """
    with ai.compute.forward: pass
    log.finalize()
    second = dftracer.initialize_log("deep/er/second.pfw", None, -1)
    with ai.compute.backward: pass
    second.finalize()
    """
    )
    assert shape(first) == [("compute", "forward")]
    second = [json.loads(line) for line in (tmp_path / "deep/er/second.pfw").read_text().splitlines()]
    assert shape(second) == [("compute", "backward")]


def test_a_name_that_ends_in_gz_is_compressed(program: Program, tmp_path: Path) -> None:
    """`trace.pfw.gz` holds the same lines."""
    program(START.replace("trace.pfw", "trace.pfw.gz") + "\n    with ai.compute.forward: pass\n")
    with gzip.open(tmp_path / "trace.pfw.gz", "rt") as file:
        assert shape([json.loads(line) for line in file]) == [("compute", "forward")]


def test_a_file_that_cannot_be_written_does_not_hurt(program: Program, tmp_path: Path) -> None:
    """The program ends as ever, and the run folder has the events."""
    (tmp_path / "trace.pfw").mkdir()
    text = START + "\n    with ai.compute.forward: pass\n    log.finalize()\n    os.rmdir('trace.pfw')\n"
    assert program(text) == []
    assert len(list((tmp_path / "sonde-runs").iterdir())) == 1


def test_a_folder_that_cannot_be_made_does_not_hurt(program: Program, tmp_path: Path) -> None:
    """A file stands where the folder of the log should be."""
    (tmp_path / "in-the-way").write_text("")
    program(
        START.replace("trace.pfw", "in-the-way/trace.pfw") + "\n    with ai.compute.forward: pass\n    log.finalize()\n"
    )


def test_sonde_switched_off_wins(program: Program, tmp_path: Path) -> None:
    """SONDE=0: nothing is recorded, whatever DFTRACER_ENABLE says."""
    assert program(START + "\n    with ai.compute.forward: pass\n    log.finalize()\n", SONDE="0") == []
    assert [path.name for path in tmp_path.iterdir()] == ["program.py"]


def test_a_recording_that_runs_already_goes_on_after_finalize(program: Program) -> None:
    """Who called `sonde.init()` ends it; the file has what was recorded until then."""
    lines = program(
        """
        import sonde
        from sonde.compat.dftracer import dftracer, ai
        session = sonde.init(dir="mine")
        with ai.compute.forward: pass
        log = dftracer.initialize_log("trace.pfw", None, -1)
        with ai.compute.backward: pass
        log.finalize()
        assert session.active
        sonde.finish()
        """
    )
    assert shape(lines) == [("compute", "forward"), ("compute", "backward")]


# ── processes and threads ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_are_in_the_parents_file(program: Program, method: str) -> None:
    """Also when they start the log themselves, as DFTracer's users do; they write no file of their own."""
    lines = program(
        f"""
        import multiprocessing, os
        from sonde.compat.dftracer import dftracer, ai

        @ai.data.item
        def item(i):
            return os.getpid()

        def start():
            dftracer.initialize_log("trace.pfw", None, -1)

        if __name__ == "__main__":
            log = dftracer.initialize_log("trace.pfw", None, -1)
            with multiprocessing.get_context("{method}").Pool(2, start) as pool:
                pids = set(pool.map(item, range(100), chunksize=1))
                pool.close()
                pool.join()
            with ai.pipeline.train:
                pass
            log.finalize()
            print(pids)
        """
    )
    assert Counter(name for _, name in shape(lines)) == {"item": 100, "train": 1}
    pids = {line["pid"] for line in lines if line["name"] == "item"}
    train = {line["pid"] for line in lines if line["name"] == "train"}
    assert pids
    assert not pids & train


def test_threads_lose_nothing(program: Program) -> None:
    """Four threads, 2,500 events each, through one `dft_fn`."""
    lines = program(
        START
        + """
    fn = dft_fn("work")
    @fn.log
    def work(): pass
    def loop():
        for _ in range(2500): work()
    threads = [threading.Thread(target=loop) for _ in range(4)]
    for t in threads: t.start()
    for t in threads: t.join()
    """
    )
    assert Counter(shape(lines)) == {("work", "work"): 10_000}


# ── dft_fn ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_log_names_events_by_the_function(program: Program) -> None:
    """Qualified names; `name=` replaces them; static and class methods work through the class and an instance."""
    lines = program(
        START
        + """
    fn = dft_fn("io")

    @fn.log
    def plain(x): return x

    @fn.log(name="other")
    def renamed(): return 2

    class Reader:
        @fn.log_init
        def __init__(self): self.x = 3

        @fn.log
        def read(self): return self.x

        @fn.log_static
        @staticmethod
        def above(): return 4

        @staticmethod
        @fn.log_static
        def below(): return 5

        @fn.log
        @classmethod
        def kind(cls): return cls.__name__

    assert (plain(1), renamed()) == (1, 2)
    reader = Reader()
    assert (reader.read(), reader.above(), Reader.above(), reader.below(), reader.kind()) == (3, 4, 4, 5, "Reader")
    assert plain.__name__ == "plain"
    """
    )
    assert shape(lines) == [
        ("io", name)
        for name in (
            "plain",
            "other",
            "Reader.__init__",
            "Reader.read",
            "Reader.above",
            "Reader.above",
            "Reader.below",
            "Reader.kind",
        )
    ]


def test_log_takes_known_values_from_the_call(program: Program) -> None:
    """Parameters and attributes of `self` called epoch, step, image_idx, image_size; what is passed beats a default."""
    lines = program(
        START
        + """
    fn = dft_fn("io", image_idx=7)

    @fn.log
    def f(x, epoch=5, step=None): pass

    class Reader:
        def __init__(self): self.image_size = 12.5
        @fn.log
        def read(self, step): pass

    f(1)
    f(1, epoch=9)
    f(1, 2, step=3)
    Reader().read(4)
    try:
        f()
    except TypeError:
        pass
    """
    )
    assert arguments(lines, "f")[:3] == [
        {"epoch": 5, "image_idx": 7},
        {"epoch": 9, "image_idx": 7},
        {"epoch": 2, "step": 3, "image_idx": 7},
    ]
    assert arguments(lines, "f")[3]["error"] == "TypeError"
    assert arguments(lines, "Reader.read") == [{"step": 4, "image_size": 12.5, "image_idx": 7}]


def test_generators_and_coroutines_are_timed_over_their_life(program: Program) -> None:
    """And an exception leaves an event, marked."""
    lines = program(
        START
        + """
    import asyncio, inspect
    fn = dft_fn("io")

    @fn.log
    def batches():
        for i in range(3):
            time.sleep(0.002)
            yield i

    @fn.log
    async def load():
        await asyncio.sleep(0.005)

    @fn.log
    def fail():
        raise KeyError

    assert list(batches()) == [0, 1, 2] and inspect.iscoroutinefunction(load)
    asyncio.run(load())
    try:
        fail()
    except KeyError:
        pass
    """
    )
    durations = {line["name"]: line["dur"] for line in lines if line["ph"] == "X"}
    assert durations["batches"] >= 6000
    assert durations["load"] >= 5000
    assert arguments(lines, "fail") == [{"error": "KeyError"}]


def test_iter_records_wait_and_use(program: Program) -> None:
    """`loop.iter` and `loop.yield`, counted from 1; also under another name, also on break."""
    lines = program(
        START
        + """
    fn = dft_fn("loop_cat")
    for i in fn.iter(range(5)):
        if i == 1: break
    assert list(fn.iter("ab", name="batch", include_block=False)) == ["a", "b"]
    """
    )
    assert [found["count"] for found in arguments(lines, "loop.yield")] == ["1", "2"]
    assert shape(lines) == [
        ("loop_cat", name)
        for name in ("loop.iter", "loop.yield", "loop.iter", "loop.yield", "batch.iter", "batch.iter")
    ]


def test_a_block_is_named_by_name_or_by_the_function_around_it(program: Program) -> None:
    """`with dft_fn(...)` is one event; flush and reset split it; enable=False leaves it out."""
    lines = program(
        START
        + """
    def outer():
        with dft_fn("block") as fn:
            fn.flush()
            time.sleep(0.01)
            fn.reset()
    outer()
    with dft_fn("block", "named", epoch=1, step=2): pass
    with dft_fn("block", "off", enable=False): pass
    """
    )
    assert shape(lines) == [("block", "outer"), ("block", "outer"), ("block", "named")]
    assert arguments(lines, "named") == [{"epoch": 1, "step": 2}]


def test_update_inside_concerns_the_open_event_and_outside_the_later_ones(program: Program) -> None:
    """Nothing leaks from one event to the next; step and epoch are the process's."""
    lines = program(
        START
        + """
    fn = dft_fn("io")
    fn.update(args={"all": 1})

    @fn.log
    def read(size):
        fn.update(image_size=size)

    read(10)
    fn.update(step=3, epoch=1)
    read(20)
    """
    )
    assert arguments(lines, "read") == [{"all": 1}, {"all": 1, "epoch": 1, "step": 3}]
    assert [found["image_size"] for found in arguments(lines, "read.update")] == [10, 20]
    inside = {line["args"]["p_idx"] for line in lines if line["name"] == "read.update"}
    assert inside == {line["id"] for line in lines if line["name"] == "read"}


def test_metadata_and_foreign_events(program: Program) -> None:
    """`log_metadata`, `log_metadata_event` and `log_event` keep what they are given."""
    lines = program(
        START
        + """
    dft_fn("io").log_metadata("dataset", "imagenet")
    log.log_metadata_event("version", 3)
    log.enter_event()
    log.log_event("copy", "gpu", log.get_time(), 12, {"bytes": 5}, {"rate": 0.5}, {"kind": "h2d"})
    log.exit_event()
    """
    )
    facts = [(line["args"]["name"], line["args"]["value"]) for line in lines if line["name"] == "CM"]
    assert facts == [("dataset", "imagenet"), ("version", "3")]
    (copy,) = arguments(lines, "copy")
    assert {key: copy[key] for key in ("duration", "bytes", "rate", "kind")} == {
        "duration": 12,
        "bytes": 5,
        "rate": 0.5,
        "kind": "h2d",
    }


def test_a_custom_profiler(program: Program) -> None:
    """`DFTracerAI` has its own category, its values on all events, and every form of `ai`."""
    lines = program(
        START
        + """
    mine = DFTracerAI(cat="sim", name="solve", epoch=1, image_size=2.5)
    with mine: pass
    with mine.derive("inner"): pass
    with DFTracerAI(cat="sim"): pass
    with DFTracerAI(cat="sim", name="off", enable=False): pass
    """
    )
    assert shape(lines) == [("sim", "solve"), ("sim", "solve.inner"), ("sim", "sim")]
    assert arguments(lines, "solve.inner") == [{"epoch": 1, "image_size": 2.5}]


def test_a_custom_profiler_is_a_class(program: Program) -> None:
    """It can be derived from and asked for; every profiler of the tree is one; an empty name is that of the category."""
    lines = program(
        START
        + """
    class Mine(DFTracerAI):
        def __init__(self): super().__init__(cat="sim", name="")
    with Mine(): pass
    assert isinstance(Mine(), DFTracerAI) and isinstance(Mine().derive("x"), DFTracerAI)
    assert isinstance(ai.compute, DFTracerAI) and not isinstance(ai.compute, Mine)
    """
    )
    assert shape(lines) == [("sim", "sim")]


def test_hostile_values_give_valid_lines(program: Program) -> None:
    """Quotes, newlines, NaN, large numbers, long texts, broken objects: each line is JSON, the program does not notice."""
    lines = program(
        START
        + r"""
    class Broken:
        def __str__(self): raise ValueError
        __repr__ = __str__
    circle = {}
    circle["self"] = circle
    for value in ('"', "a\nb", "\x00\x1b", "a\\b", float("nan"), 2**70, "\ud800", Broken(), "x" * 1_000_000, circle, b"\xff"):
        with ai.data.item(args={"v": value, 5: "key"}): pass
        ai.update(args={"shared": value})
        with dft_fn("io", "block") as fn: fn.update(args={"v": value})
    """
    )
    assert Counter(name for _, name in shape(lines)) == {"item": 11, "block": 11, "block.update": 11}


def test_importing_it_loads_nothing_heavy_and_touches_no_signal(program: Program, tmp_path: Path) -> None:
    """No torch, numpy or duckdb, no handler, no file."""
    program(
        """
        import signal, sys
        before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGABRT)]
        from sonde.compat.dftracer import dftracer, ai, dft_fn, DFTracerAI
        assert not {"torch", "numpy", "duckdb"} & set(sys.modules)
        assert before == [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGABRT)]
        """
    )
    assert [path.name for path in tmp_path.iterdir()] == ["program.py"]


def test_what_the_probes_see_is_not_in_the_file(program: Program) -> None:
    """A DFTracer user gets the events that the program names and no others, also from spawned workers."""
    pytest.importorskip("torch")
    lines = program("""
        import torch
        from torch.utils.data import DataLoader, Dataset
        from sonde.compat.dftracer import ai, dftracer

        class Data(Dataset):
            def __len__(self):
                return 4
            @ai.data.item
            def __getitem__(self, index):
                return torch.ones(2)

        if __name__ == "__main__":
            log = dftracer.initialize_log("trace.pfw", None, 0)
            for batch in DataLoader(Data(), batch_size=2, num_workers=1, multiprocessing_context="spawn"):
                with ai.compute.forward:
                    pass
            log.finalize()
    """)
    assert {line["cat"] for line in lines} == {"compute", "data", "dftracer"}
