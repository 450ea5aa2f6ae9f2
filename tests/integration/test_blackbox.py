"""The black box of real programs that fail: in a worker, for lack of memory or space, by a signal, in one rank of two."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.integration import launching
from tests.integration.conftest import TIMEOUT, Programs

pytest.importorskip("torch")

from sonde import open_run
from sonde.analysis.postmortem.blackbox import black_box
from sonde.views.blackbox import blackbox

# Trains on 160 items in batches of four; `fails(index)` is asked for each item, `happens(step)` after each step.
TRAINING = """
    import os, signal, sys, time
    import sonde
    import torch
    torch.set_num_threads(1)

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 160
        def __getitem__(self, index):
            fails(index)
            return {"x": torch.full((16,), index / 160), "id": f"item {index}"}

    def train(most=None, **options):
        torch.manual_seed(0)
        model = torch.nn.Linear(16, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        step = 0
        while most is None or step < most:
            for batch in torch.utils.data.DataLoader(Data(), batch_size=4, **options):
                optimizer.zero_grad()
                model(batch["x"]).pow(2).mean().backward()
                optimizer.step()
                happens(step)
                step += 1
                if step == most:
                    break

    def fails(index):
        pass

    def happens(step):
        pass
"""


def dumps(programs: Programs) -> list[dict[str, Any]]:
    """What the black boxes of the one run say; nothing half-written stands beside them."""
    box = programs.only / "blackbox"
    assert [path.name for path in box.iterdir() if path.name.startswith(".")] == []
    return [json.loads((folder / "dump.json").read_text()) for folder in sorted(box.iterdir())]


def only(programs: Programs) -> dict[str, Any]:
    """What the only one says."""
    (dump,) = dumps(programs)
    return dump


def code(*lines: str) -> str:
    """The training, and these lines behind it."""
    text = "\n".join(line.removeprefix("    ") for line in TRAINING.splitlines())
    return "\n".join([text, *lines])


ON = {"SONDE": "1", "SONDE_BLACKBOX": "3", "SONDE_WATCH_NONFINITE": "record"}
MAIN = "if __name__ == '__main__':\n    "
BAD_ITEM = "def fails(index):\n    if index == 77:\n        raise ValueError('item 77 is broken')"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_an_item_that_raises_in_a_worker_is_named(programs: Programs, method: str) -> None:
    """Index, place, batch and worker; the exit code and the exception are the program's own.

    Spawned workers learn of a black box that only a call has switched on.
    """
    call = "sonde.init(watch_nonfinite='record')\n    sonde.flow.blackbox(3)\n    " if method == "spawn" else ""
    text = code(BAD_ITEM, f"{MAIN}{call}train(num_workers=2, multiprocessing_context='{method}')")
    if call:
        done = programs.run(text, code_expected=1)
    else:
        words = ["-q", "--blackbox", "--watch-nonfinite", str(launching.script(programs.folder, text))]
        done = launching.run(programs, *words, code=1)
    assert "ValueError: item 77 is broken" in done.stderr
    dump = only(programs)
    assert dump["reason"] == "worker"
    assert dump["exception"]["type"] == "ValueError"
    assert dump["exception"]["item"] == {"index": 77, "position": 1, "id": None, "worker": 1, "batch": 19}
    assert [batch["number"] for batch in dump["batches"]] == [16, 17, 18]
    assert dump["batches"][-1]["indices"] == [72, 73, 74, 75]
    assert dump["batches"][-1]["ids"][0] == "item 72"
    assert not any(batch["changed"] for batch in dump["batches"])
    assert programs.rows("select count(*) from events where name = 'dump' and cat = 'probe'") == [(1,)]


@pytest.mark.parametrize(
    ("deed", "how", "position"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL", None),
        ("os._exit(3)", "ended with exit code 3", None),
        ("sys.exit(3)", "ended with exit code 3", 1),
    ],
)
def test_an_item_that_ends_its_worker_is_named(programs: Programs, deed: str, how: str, position: int | None) -> None:
    """As where the kernel takes the memory back: the records of the worker tell what it had in hand; and how it ended is said."""
    ends = f"def fails(index):\n    if index == 77:\n        {deed}"
    programs.run(code(ends, f"{MAIN}train(num_workers=2)"), env=ON, code_expected=1)
    dump = only(programs)
    assert dump["reason"] == "worker"
    assert dump["exception"]["item"] == {"index": 77, "position": position, "id": None, "worker": 1, "batch": 19}
    assert re.search(rf"\(worker 1 \(process \d+\) {how} while loading item 77\)$", dump["exception"]["message"])


def test_a_failure_that_the_program_has_caught_is_not_blamed_for_a_later_one(programs: Programs) -> None:
    """The worker of the earlier one has ended well."""
    caught = "try:\n        train(num_workers=1)\n    except ValueError:\n        pass\n    "
    later = "def fails(index):\n    if index == 77:\n        raise ValueError\n    if index == 9 and again:\n        os._exit(4)"
    text = code("again = False", later, f"{MAIN}{caught}again = True\n    train(num_workers=1)")
    programs.run(text, env=ON, code_expected=1)
    dump = only(programs)
    assert dump["exception"]["item"]["index"] == 9
    assert "ended with exit code 4 while loading item 9" in dump["exception"]["message"]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_that_cannot_be_collated_is_named_with_its_items(programs: Programs, workers: int) -> None:
    """No item raised: all that were to be put together are named, and what to do with them."""
    failing = [
        "def collate(items):",
        "    if any(item['id'] == 'item 77' for item in items):",
        "        raise TypeError('not to be collated')",
        "    return torch.utils.data.default_collate(items)",
    ]
    call = f"{MAIN}train(collate_fn=collate, num_workers={workers})"
    done = programs.run(code(*failing, call), env=ON, code_expected=1)
    assert "TypeError: not to be collated" in done.stderr
    item = only(programs)["exception"]["item"]
    assert (item["items"], item["batch"], item["index"]) == ([76, 77, 78, 79], 19, None)
    with open_run(programs.only) as run:
        raised = blackbox(run, black_box(run)).raised
    assert raised is not None
    assert raised.item == "items 76, 77, 78, 79 of batch 19" + (", loaded by worker 1" if workers else "")
    assert "load items 76, 77, 78, 79 from the dataset and collate them" in raised.next


def test_an_exception_that_no_hook_has_heard_of_is_written_once(programs: Programs) -> None:
    """As where a signal handler raises at that moment; Python shows it as ever."""
    lines = "sonde.mark('work')\ndef hook(*_):\n    raise OSError('hook')\nsys.excepthook = hook\nraise ValueError('unheard')"
    done = programs.run(code(lines), env=ON, code_expected=1)
    assert "ValueError: unheard" in done.stderr
    assert (only(programs)["reason"], only(programs)["exception"]["message"]) == ("exception", "unheard")
    assert [process["end"]["exception"] for process in programs.processes] == ["ValueError"]


def test_a_last_loss_that_is_not_finite_is_written_at_the_exit(programs: Programs) -> None:
    """The program ends as ever, without a call of finish()."""
    lines = "model = torch.nn.Linear(1, 1)\n(model(torch.ones(1)) * float('inf')).sum().backward()"
    programs.run(code(lines), env=ON)
    assert (only(programs)["reason"], only(programs)["batches"]) == ("nonfinite", [])


def test_an_allocator_that_gives_no_memory_is_the_reason(programs: Programs) -> None:
    """An impossible request, in the main process."""
    text = code("def happens(step):\n    if step == 6:\n        torch.empty(1 << 50)", f"{MAIN}train()")
    programs.run(text, env=ON, code_expected=1)
    dump = only(programs)
    assert (dump["reason"], dump["step"]) == ("memory", 7)
    assert "DefaultCPUAllocator" in dump["exception"]["message"]
    assert dump["batches"][-1]["number"] == 6


def test_a_real_lack_of_memory_is_written(programs: Programs) -> None:
    """The process may have no more than a little above what it has, and holds all it gets when it ends."""
    lines = """
    import resource
    held = []
    def happens(step):
        if step == 20:
            now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (now + (64 << 20),) * 2)
        if step > 20:
            held.append(torch.ones(1 << 20))
    """
    text = code("\n".join(line[4:] for line in lines.splitlines()), f"{MAIN}train()")
    programs.run(text, env=ON, code_expected=1)
    dump = only(programs)
    assert dump["reason"] == "memory"
    assert len(dump["batches"]) == 3
    newest = dump["batches"][-1]
    held = np.load(next((programs.only / "blackbox").iterdir()) / newest["values"][0]["file"])
    assert held.shape == (4, 16)
    assert held[0, 0] == pytest.approx(newest["indices"][0] / 160)


def test_a_full_disk_changes_neither_exception_nor_exit_code(programs: Programs) -> None:
    """What fits stays; here no file may be longer than 100 bytes, so nothing does, and nothing half-written is left."""
    lines = "import resource\n    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n    raise KeyError('mine')"
    text = code(f"def happens(step):\n    if step < 3:\n        return\n    {lines}", f"{MAIN}train()")
    done = programs.run(text, env=ON, code_expected=1)
    assert "KeyError: 'mine'" in done.stderr
    assert "failed while writing the black box" in done.stderr
    assert list((programs.only / "blackbox").iterdir()) == []


def test_a_kill_right_after_it_loses_nothing(programs: Programs) -> None:
    """What was written is whole on the disk, and the run says that it is there."""
    kill = (
        "from sonde.blackbox.box import trigger\n"
        "def happens(step):\n    if step == 4:\n        trigger('demand')\n        os.kill(os.getpid(), signal.SIGKILL)"
    )
    programs.run(code(kill, f"{MAIN}train()"), env=ON, code_expected=-signal.SIGKILL)
    assert only(programs)["batches"][-1]["number"] == 4
    assert programs.rows("select args->>'reason' from events where name = 'dump'") == [("demand",)]


# ── signals ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def running(programs: Programs) -> Iterator[list[subprocess.Popen[str]]]:
    """Programs that are started, and ended in the end."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for program in started:
        if program.poll() is None:
            program.kill()
        program.communicate()


SLOW = "def happens(step):\n    time.sleep(0.02)\n    if step == 20:\n        print(os.getpid(), flush=True)"
HANDLER = "def handle(number, frame):\n    print('mine', number, flush=True)\n    sys.exit(9)\n"


def start(programs: Programs, text: str, running: list[subprocess.Popen[str]], ready: int = 1) -> list[int]:
    """Start a training that does not end; the ids of the processes that say that they are at work."""
    program = programs.start(text, env=ON)
    running.append(program)
    assert program.stdout is not None
    return [int(program.stdout.readline()) for _ in range(ready)]


@pytest.mark.parametrize(
    ("handler", "status"),
    [
        ("", -signal.SIGTERM),
        (f"{HANDLER}signal.signal(signal.SIGTERM, handle)", 9),
        (f"{HANDLER}LATE = True", 9),
    ],
    ids=["none", "before", "later"],
)
def test_sigterm_writes_it_and_does_what_it_does(
    programs: Programs, running: list[subprocess.Popen[str]], handler: str, status: int
) -> None:
    """The process dies of it, or the handler of the program is called, whenever it was installed."""
    late = "def late(step):\n    if step == 3 and 'LATE' in globals():\n        signal.signal(signal.SIGTERM, handle)"
    slow = SLOW.replace("time.sleep(0.02)", "late(step)\n    time.sleep(0.02)")
    (pid,) = start(programs, code(handler, late, slow, f"{MAIN}train()"), running)
    os.kill(pid, signal.SIGTERM)
    out, _ = running[0].communicate(timeout=TIMEOUT)
    assert running[0].returncode == status
    assert out == ("mine 15\n" if handler else "")
    dump = only(programs)
    assert (dump["reason"], dump["exception"]) == ("sigterm", None)
    assert len(dump["batches"]) == 3


def test_a_program_that_hangs_dies_of_sigterm_all_the_same(
    programs: Programs, running: list[subprocess.Popen[str]]
) -> None:
    """It never comes to run Python code again, so nothing is written; the status is that of SIGTERM."""
    hang = "def happens(step):\n    if step == 5:\n        print(os.getpid(), flush=True)\n        sum(range(10 ** 12))"
    short = "import sonde.blackbox.sigterm\nsonde.blackbox.sigterm.GRACE_SECONDS = 1"
    (pid,) = start(programs, code(short, hang, f"{MAIN}train()"), running)
    time.sleep(0.5)
    os.kill(pid, signal.SIGTERM)
    running[0].communicate(timeout=TIMEOUT)
    assert running[0].returncode == -signal.SIGTERM
    assert not (programs.only / "blackbox").exists()


def test_a_sigterm_for_workers_too_leaves_the_dump_whole(
    programs: Programs, running: list[subprocess.Popen[str]]
) -> None:
    """Schedulers send it to all processes of a program; torch raises an error then, wherever the program is."""
    text = code(SLOW, f"{MAIN}os.setpgid(0, 0)\n    train(num_workers=2)")
    (pid,) = start(programs, text, running)
    os.killpg(pid, signal.SIGTERM)
    _, errors = running[0].communicate(timeout=TIMEOUT)
    assert running[0].returncode == -signal.SIGTERM
    assert "Sonde failed" not in errors
    assert all(value["file"] for batch in only(programs)["batches"] for value in batch["values"][:1])


def test_sigterm_while_python_ends_is_sigterm(programs: Programs) -> None:
    """Its handlers are gone by then, and the signal that would call ours would end the process with its own status."""
    late = (
        "class Late:\n    def __del__(self, os=os, time=time):\n        os.kill(os.getpid(), 15)\n        time.sleep(2)"
    )
    text = code(late, f"{MAIN}late = Late()\n    train(most=8)")
    launching.run(programs, "-q", "--blackbox", str(launching.script(programs.folder, text)), code=128 + signal.SIGTERM)


# ── several processes ────────────────────────────────────────────────────────────────────────────────────────────────

RANKS = """
import torch.multiprocessing as mp
import torch.distributed as dist

def rank(number, file):
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(number), "2"
    dist.init_process_group("gloo", init_method="file://" + file, rank=number, world_size=2)
    globals()["happens"] = lambda step: each(step, number)
    train(most=5000)

def each(step, number):
    dist.all_reduce(torch.ones(1))
    time.sleep(0.02)
    if step == 10:
        os.write(1, f"{os.getpid()}\\n".encode())
    if number == 1 and os.path.exists("fail"):
        raise RuntimeError("rank 1 only")

if __name__ == "__main__":
    mp.start_processes(rank, args=(os.path.abspath("store"),), nprocs=2, start_method="fork")
"""


def wait_for(programs: Programs, pattern: str, count: int) -> None:
    """Come back when the run has so many dumps of this name."""
    until = time.monotonic() + TIMEOUT
    while len(list(programs.only.glob(f"blackbox/{pattern}"))) < count and time.monotonic() < until:
        time.sleep(0.1)


def test_each_of_two_ranks_answers_a_request_and_tells_of_its_own_failure(
    programs: Programs, running: list[subprocess.Popen[str]]
) -> None:
    """Once each, with rank and batches. Under multiprocessing `sys.excepthook` is never called, and it is written all the same."""
    pids = start(programs, code(RANKS), running, ready=2)
    (programs.only / "dump").touch()
    wait_for(programs, "*-demand-*", 2)
    (programs.folder / "fail").touch()
    running[0].communicate(timeout=TIMEOUT)
    assert running[0].returncode == 1
    demanded = [dump for dump in dumps(programs) if dump["reason"] == "demand"]
    assert sorted((dump["rank"], dump["world_size"], len(dump["batches"])) for dump in demanded) == [
        (0, 2, 3),
        (1, 2, 3),
    ]
    assert sorted(dump["pid"] for dump in demanded) == sorted(pids)
    (failed,) = [dump for dump in dumps(programs) if dump["rank"] == 1 and dump["reason"] == "exception"]
    assert (failed["exception"]["type"], failed["exception"]["message"]) == ("RuntimeError", "rank 1 only")
    assert len(failed["batches"]) == 3
