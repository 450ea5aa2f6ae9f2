"""Kills, limits, full disks, closed descriptors: what was recorded stays, losses are counted, nobody is hurt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.events.harness import HALF, MODULES, PLENTY, PROGRAM, RING, ROOT, FolderHost, Process, process, run

from sonde.store.usage import homeless

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LIMIT = """
import resource
def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
"""


# ── sudden ends ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("count", [0, 1, 700, 1364, 1365, 5000])
def test_a_kill_loses_nothing(core_name: str, tmp_path: Path, count: int) -> None:
    """After kill -9 every completed span is there, and the open ones say what was running."""
    run(
        core_name,
        tmp_path,
        f"""
span = core.Span("x", args={{"a": 1}})
outer = core.Span("outer")
outer.start()
for _ in range({count}):
    with span: pass
core.Span("running").start()
os.kill(os.getpid(), signal.SIGKILL)
""",
        code=-signal.SIGKILL,
    )
    found = process(tmp_path)
    assert len(found.named("x")) == count
    assert not any(event.open for event in found.named("x"))
    assert found.only("outer").open
    assert found.only("running").open
    assert found.only("running").parent == 1
    assert not found.gaps


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("os._exit(3)", 3),
        ("sys.exit(4)", 4),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("os.abort()", -signal.SIGABRT),
        ("raise ValueError", 1),
    ],
)
def test_other_ends_lose_nothing(core_name: str, tmp_path: Path, end: str, code: int) -> None:
    """However a program ends, its records are there and its exit code is its own."""
    run(
        core_name,
        tmp_path,
        f"""
for i in range(2000):
    with core.Span("x", key=i): pass
{end}
""",
        code=code,
    )
    found = process(tmp_path)
    assert [event.key for event in found.listed()] == list(range(2000))


@pytest.mark.parametrize("times", [5, pytest.param(100, marks=pytest.mark.soak)])
def test_kills_at_random_moments(core_name: str, tmp_path: Path, times: int) -> None:
    """Whenever the kill comes, every span that the program knew to be complete is readable."""
    program = (
        PROGRAM.format(module=MODULES[core_name], folder="{folder}", cap=PLENTY)
        + """
span, inner = core.Span("x", args={"a": 1}), core.Span("y")
core.mark("ready")
print("ready", flush=True)
n = 0
while True:
    n += 1
    with span:
        with inner: pass
    if n % 50 == 0: os.write(1, b"%d\\n" % n)
"""
    )
    for i in range(times):
        folder = tmp_path / str(i)
        folder.mkdir()
        env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        with subprocess.Popen(
            [sys.executable, "-c", program.replace("{folder}", str(folder))], stdout=subprocess.PIPE, env=env
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            time.sleep(0.002 * (i % 10) + 0.0001 * i)
            child.kill()
            told = [int(line) for line in child.stdout.read().splitlines() if line]
        found = process(folder)
        complete = [event for event in found.named("x") if not event.open]
        assert len(complete) >= max(told, default=0)
        assert sum(event.open for event in found.listed()) <= 2
        assert found.gaps <= 1  # a number may have been given out for a record that was never written


def test_records_in_exit_handlers(core_name: str, tmp_path: Path) -> None:
    """Spans in atexit handlers and finalizers, before and after the end, are harmless."""
    run(
        core_name,
        tmp_path,
        """
import atexit
span = core.Span("x")
class Late:
    def __del__(self):
        with span: core.mark("del")
late = Late()
items = core.iterate([1, 2], span, span)
next(items)
life = core.Life(span)
life.resume()
atexit.register(lambda: span.wrap(int)())
atexit.register(core.end)
atexit.register(lambda: span.wrap(int)())
""",
    )
    assert len(process(tmp_path).listed()) == 4


# ── the file-size limit ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_size_limit_loses_blocks_and_counts_them(core_name: str, tmp_path: Path) -> None:
    """Past the limit blocks are lost and counted, the program runs on, and recording resumes when there is room."""
    run(
        core_name,
        tmp_path,
        LIMIT
        + """
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
span = core.Span("x")
def many(n):
    for _ in range(n):
        with span: pass
many(1)
limit(80_000)
many(10_000)
assert core.info()["lost_space"] > 0
limit(resource.RLIM_INFINITY)
lost = core.info()["lost_space"]
many(5_000)
assert core.info()["lost_space"] == lost
core.end()
print("done")
""",
    )
    found = process(tmp_path)
    assert found.next_seq == 15_002
    assert found.gaps == found.header["lost_space"] > 0
    assert found.gaps % HALF == 0
    last = [event.seq for event in found.listed()][-5000:]
    assert last == list(range(10_002, 15_002))


def test_no_room_for_a_ring(core_name: str, tmp_path: Path) -> None:
    """A thread that gets no ring loses its records, which are counted, and gets one when there is room again."""
    run(
        core_name,
        tmp_path,
        LIMIT
        + """
def work(name, times=1):
    def body():
        for _ in range(times):
            with core.Span(name): pass
    thread = threading.Thread(target=body)
    thread.start()
    return thread
core.mark("main")
limit(4096 + 65536)
gate = threading.Event()
def body():
    for _ in range(100):
        with core.Span("early"): pass
    gate.wait()
    time.sleep(0.15)
    for _ in range(10):
        with core.Span("late"): pass
thread = threading.Thread(target=body)
thread.start()
time.sleep(0.3)
limit(resource.RLIM_INFINITY)
gate.set()
thread.join()
core.end()
""",
    )
    found = process(tmp_path)
    assert (len(found.named("main")), len(found.named("early")), len(found.named("late"))) == (1, 100, 10)
    assert found.gaps == found.lost == 0


def test_no_room_at_all_at_first(core_name: str, tmp_path: Path) -> None:
    """When not even the header finds room, records wait in memory until it does."""
    run(
        core_name,
        tmp_path,
        LIMIT
        + """
limit(1000)
for _ in range(50):
    with core.Span("early", args={"a": 1}): core.counter("c", 1)
limit(resource.RLIM_INFINITY)
time.sleep(1.2)
core.mark("late")
core.end()
""",
    )
    found = max((Process(place) for place in tmp_path.iterdir() if place.is_dir()), key=lambda one: len(one.events))
    assert found.tree() == [("early", None), ("c", "early")] * 50 + [("late", None)]
    assert found.args(found.named("early")[-1]) == {"a": 1}
    assert found.gaps == found.lost == 0


def test_no_room_for_arguments(core_name: str, tmp_path: Path) -> None:
    """Arguments that find no room are lost and counted; their record is kept, and later ones are written."""
    run(
        core_name,
        tmp_path,
        LIMIT
        + """
core.mark("m", args={"a": "x" * 400})
limit(600)
span = core.Span("x", args={"a": "y" * 400})
with span: pass
with span: pass
try:
    with core.Span("z"): raise KeyError("k" * 10)
except KeyError: pass
core.mark("m", args={"a": "x" * 900})
limit(resource.RLIM_INFINITY)
with span: pass
core.end()
""",
    )
    found = process(tmp_path)
    assert [found.args(event).get("a", "")[:1] for event in found.listed()] == ["x", "", "", "", "", "y"]
    assert found.header["lost_args"] in (3, 4)  # the few bytes of the error may still have found room
    assert not found.gaps


def test_no_room_for_names(core_name: str, tmp_path: Path) -> None:
    """Names that find no room are written as soon as there is some."""
    run(
        core_name,
        tmp_path,
        LIMIT
        + """
core.mark("first")
limit(os.path.getsize(next(folder.glob("*/names.jsonl"))) + 10)
core.mark("second")
limit(resource.RLIM_INFINITY)
core.mark("third")
core.end()
""",
    )
    assert process(tmp_path).tree() == [("first", None), ("second", None), ("third", None)]


# ── records inside of our own work ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("inside", ["usage", "open", "thread_line", "name_line", "encode"])
@pytest.mark.parametrize("mapped", [True, False])
def test_a_record_made_while_sonde_is_at_work_is_not_lost(core: Any, tmp_path: Path, inside: str, mapped: bool) -> None:
    """A garbage collection or a signal handler records while a core asks its host for something."""
    host = FolderHost(tmp_path, mapped=mapped)
    answer = getattr(host, inside)
    made: list[int] = []

    def busy(*args: object) -> object:
        if len(made) < 40:
            made.append(1)
            with core.Span("inner", args={"n": 1}):
                core.mark("mark", args={"n": 2})
        return answer(*args)

    setattr(host, inside, busy)
    core.begin(host, PLENTY)
    for i in range(2 * RING):
        with core.Span("outer", args={"i": i % 3}):
            pass
    thread = threading.Thread(target=lambda: core.mark("thread"))
    thread.start()
    thread.join()
    core.end()
    found = process(tmp_path)
    assert made
    assert (found.gaps, found.lost, found.header["lost_args"]) == (0, 0, 0)
    assert [len(found.named(name)) for name in ("outer", "inner", "mark")] == [2 * RING, len(made), len(made)]
    assert all(found.args(event) == {"n": 1} and not event.open for event in found.named("inner"))
    assert len(found.threads) == len({event.thread for event in found.listed()}) == 2


# ── foreign hands ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_closed_descriptors(core_name: str, tmp_path: Path) -> None:
    """A program that closes all descriptors and opens others never finds our bytes in its files."""
    run(
        core_name,
        tmp_path,
        """
span = core.Span("x")
with span: pass
os.closerange(3, 100)
mine = [os.open(folder / f"mine{i}", os.O_RDWR | os.O_CREAT) for i in range(40)]
for i in range(5000):
    with span: core.mark(f"name {i}", args={"a": i})
with core.Span("y", args={"b": 1}): pass
t = threading.Thread(target=lambda: core.mark("thread"))
t.start(); t.join()
lost = core.info()["lost_space"]
assert lost > 0 and core.info()["lost_args"] > 0
core.flush()
core.end()
import gc; gc.collect()
for fd in mine:
    os.fstat(fd)
    assert os.fstat(fd).st_size == 0
    os.write(fd, b"ok")
""",
    )
    for i in range(40):
        assert (tmp_path / f"mine{i}").read_bytes() == b"ok"
    found = Process(next(place for place in tmp_path.iterdir() if place.is_dir()))
    assert found.lost == found.gaps
    assert found.lost + homeless(tmp_path) > 0


def test_a_host_that_cannot_open_yet(core: Any, tmp_path: Path) -> None:
    """Until the folder can be opened, records wait in memory, and the run counts them."""
    host = FolderHost(tmp_path, refuse=1)
    core.begin(host, PLENTY)
    for i in range(10):
        with core.Span("early", args={"i": i}):
            core.mark("inside")
    assert host.asked == 1
    assert homeless(tmp_path) == 20
    time.sleep(1.1)
    core.mark("late")
    core.end()
    found = process(tmp_path)
    assert found.tree() == [("early", None), ("inside", "early")] * 10 + [("late", None)]
    assert [found.args(event)["i"] for event in found.named("early")] == list(range(10))
    assert found.gaps == found.lost == homeless(tmp_path) == 0


def test_records_that_wait_too_long_for_a_folder_are_lost_and_counted(core: Any, tmp_path: Path) -> None:
    """Memory for records without a folder is bounded: the oldest go, and are counted."""
    core.begin(FolderHost(tmp_path, refuse=1), PLENTY)
    for i in range(RING + 1):
        core.mark("m", key=i)
    core.end()
    found = process(tmp_path)
    assert [event.key for event in found.listed()] == list(range(HALF, RING + 1))
    assert found.gaps == found.header["lost_space"] == HALF


@pytest.mark.parametrize("end", ["core.end()", "pass", "os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_a_child_that_never_gets_a_folder_is_counted(core_name: str, tmp_path: Path, end: str) -> None:
    """However it ends, the run knows how many records such a process has made."""
    program = f"""
core.mark("parent")
host.refuse = 10**6
if os.fork() == 0:
    for _ in range(3000): core.mark("child")
    {end}
    os._exit(0)
os.wait()
core.end()
"""
    run(core_name, tmp_path, program)
    assert process(tmp_path).tree() == [("parent", None)]
    assert homeless(tmp_path) == 3000


@pytest.mark.parametrize("name", ["usage", "rings", "events.seg", "args.bin", "names.jsonl"])
def test_a_file_that_is_truncated_under_the_program_does_no_harm(core_name: str, tmp_path: Path, name: str) -> None:
    """Another program cuts one of our files: this one goes on, and nothing is said to be there that is not."""
    program = f"""
span = core.Span("x", args={{"a": 1}})
for _ in range(100):
    with span: pass
for path in [*folder.glob("{name}"), *folder.glob("*/{name}")]: os.truncate(path, 0)
for i in range(5000):
    with span: core.mark("m", args={{"i": i}})
    core.set_context(i, 0)
t = threading.Thread(target=lambda: core.mark("thread")); t.start(); t.join()
core.end()
print("alive")
"""
    done = run(core_name, tmp_path, program)
    assert done.stdout == "alive\n"
    assert done.stderr == ("torn\n" if (core_name, name) == ("c", "rings") else "")


@pytest.mark.unsanitized("AddressSanitizer handles SIGBUS itself")
def test_the_end_of_a_recording_takes_its_signal_handler_away(core_name: str, tmp_path: Path) -> None:
    """A fault of the program's own kills it as ever: while Sonde records, and after that."""
    fault = """
import mmap
fd = os.open(folder / "mine", os.O_RDWR | os.O_CREAT); os.ftruncate(fd, 4096)
mine = mmap.mmap(fd, 4096); os.ftruncate(fd, 0)
"""
    run(core_name, tmp_path, "core.mark('x')" + fault + "mine[0] = 1", code=-signal.SIGBUS)
    run(core_name, tmp_path, "core.mark('x')\ncore.end()" + fault + "mine[0] = 1", code=-signal.SIGBUS)
    run(core_name, tmp_path, "core.mark('x')\nos.kill(os.getpid(), signal.SIGBUS)\ntime.sleep(5)", code=-signal.SIGBUS)
    own = "signal.signal(signal.SIGBUS, lambda *_: os._exit(7))\n"
    run(core_name, tmp_path, own + "core.mark('x')\nos.kill(os.getpid(), signal.SIGBUS)\ntime.sleep(5)", code=7)
    traced = "import faulthandler; faulthandler.enable()\n"
    done = run(core_name, tmp_path, traced + "core.mark('x')" + fault + "mine[0] = 1", code=-signal.SIGBUS)
    assert "Fatal Python error: Bus error" in done.stderr


def test_a_host_that_never_opens(core: Any, tmp_path: Path) -> None:
    """Without files a program runs as ever, and the run counts what it would have recorded."""
    host = FolderHost(tmp_path, refuse=1000)
    core.begin(host, PLENTY)
    span = core.Span("x", args={"a": 1})
    with pytest.raises(KeyError), span:
        raise KeyError
    assert span.wrap(len)("abc") == 3
    assert list(core.iterate([1, 2], span, span)) == [1, 2]
    core.flush()
    core.end()
    assert host.asked == 3  # at first, and once more each time that records would be written out
    assert homeless(tmp_path) == 7


def test_a_host_that_records(core: Any, tmp_path: Path) -> None:
    """Spans inside the opening of the folder do not make it open twice, nor hang."""

    class Recording(FolderHost):
        def open(self) -> Any:
            with core.Span("opening"):
                return super().open()

        def thread_line(self, ordinal: int, tid: int) -> bytes:
            with core.Span("line"):
                return super().thread_line(ordinal, tid)

        def encode(self, args: Any) -> tuple[bytes, bool]:
            with core.Span("encoding"):
                return super().encode(args)

    host = Recording(tmp_path)
    core.begin(host, PLENTY)
    with core.Span("x", args={"a": 1}):
        pass
    core.end()
    found = process(tmp_path)
    assert host.asked == 1
    assert found.args(found.only("x")) == {"a": 1}
    assert found.gaps == found.lost


def test_signal_handlers_that_record(core_name: str, tmp_path: Path) -> None:
    """A handler that interrupts recording and records itself destroys nothing."""
    run(
        core_name,
        tmp_path,
        """
handled = [0]
tick = core.Span("tick")
def handler(*_):
    handled[0] += 1
    with tick: core.mark("in")
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
span = core.Span("x")
for i in range(60_000):
    with span: pass
signal.setitimer(signal.ITIMER_REAL, 0)
core.end()
(folder / "handled").write_text(str(handled[0]))
""",
    )
    found = process(tmp_path)
    assert len(found.named("x")) == 60_000
    assert not any(event.open for event in found.listed())
    # What a handler records in the middle of a spill may find no room; then it is counted.
    assert found.gaps == found.lost
    handled = int((tmp_path / "handled").read_text())
    assert handled - found.lost <= len(found.named("tick")) <= handled


# ── the size cap ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_cap_thins_out_detail_first(core: Any, host: FolderHost, done: Callable[[], Process]) -> None:
    """Near the cap detail goes first, then the normal, then everything; each record not taken is a counted gap."""
    cap = 2_000_000
    core.begin(host, cap)
    levels = [core.Span(name, level=level) for level, name in enumerate(("essential", "normal", "detail"))]
    rounds = 20_000
    for _ in range(rounds):
        for span in levels:
            with span:
                pass
    assert core.info()["next_seq"] == 3 * rounds + 1
    found = done()
    last = [max(event.seq for event in found.named(name)) for name in ("detail", "normal", "essential")]
    assert last == sorted(last)
    assert len({len(found.named(name)) for name in ("detail", "normal", "essential")}) == 3
    assert found.gaps == found.header["lost_cap"] == 3 * rounds - len(found.events)
    used = sum(path.stat().st_size for path in found.folder.iterdir())
    assert 0.9 * cap < used < cap + 2 * 65536


def test_the_cap_holds_for_counters_marks_and_arguments(
    core: Any, host: FolderHost, done: Callable[[], Process]
) -> None:
    """Points are thinned out like spans, and the bytes of arguments count."""
    core.begin(host, 500_000)
    for i in range(20_000):
        core.counter("c", i, level=2)
        core.mark("m", args={"text": "x" * 100, "i": i})
    found = done()
    assert found.gaps == found.header["lost_cap"] > 0
    assert len(found.named("c")) < len(found.named("m")) < 20_000
    assert (found.folder / "args.bin").stat().st_size < 600_000


def test_the_cap_is_one_for_all_processes(core: Any, host: FolderHost, tmp_path: Path) -> None:
    """What others have written counts: a process that comes when the run is full records next to nothing."""
    (tmp_path / "usage").write_bytes((10**9).to_bytes(8, "little"))
    core.begin(host, 10**9)
    for _ in range(100):
        core.mark("m")
    core.end()
    found = process(tmp_path)
    assert len(found.events) <= 1
    assert found.header["lost_cap"] == found.gaps >= 99


def test_usage_grows_with_what_is_written(core: Any, host: FolderHost, tmp_path: Path) -> None:
    """The shared count is the size of the files, give or take what is not counted."""
    core.begin(host, PLENTY)
    for i in range(3000):
        core.mark("m", args={"i": i})
    core.flush()
    used = int.from_bytes((tmp_path / "usage").read_bytes(), "little")
    folder = process(tmp_path).folder
    size = sum((folder / name).stat().st_size for name in ("rings", "events.seg", "args.bin"))
    assert abs(used - size) <= 4096 + 64


def test_a_full_ring_at_the_cap_is_still_completed(core: Any, host: FolderHost, done: Callable[[], Process]) -> None:
    """A span that was taken is completed, also when nothing else is taken any more."""
    core.begin(host, 200_000)
    with core.Span("outer", level=0):
        for _ in range(5 * RING):
            core.mark("m", level=0)
    assert core.info()["lost_cap"] > 0
    assert not done().only("outer").open
