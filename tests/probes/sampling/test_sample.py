"""`--sample`: untracked time gets the names of its lines, and the program does not notice."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

import sonde
from sonde.analysis.run import open_run
from sonde.diagnosis.diagnose import diagnose
from sonde.events import core
from sonde.exchange import stacks
from sonde.probes.sampling.frames import Tree
from sonde.probes.sampling.threads import Threads
from sonde.store.probe import SAMPLE, SAMPLE_FRAME, SAMPLE_STACK, SAMPLE_THREAD, SAMPLE_THREAD_BITS
from sonde.testing import record

SONDE = [sys.executable, "-m", "sonde", "run", "-q", "--dir", "runs"]
# 20 ms of Python in each step, outside of all phases.
PROGRAM = """
import sys, threading, time, warnings
warnings.simplefilter("error")
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
before = threading.active_count(), sys.getswitchinterval()

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4 * 30
    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.full((8,), float(index))

def summarize(loss):
    until = time.thread_time() + 0.02
    while time.thread_time() < until:
        total = sum(range(50))

for batch in torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=int(sys.argv[1])):
    optimizer.zero_grad()
    loss = model(batch).sum()
    loss.backward()
    optimizer.step()
    summarize(loss)
    assert threading.active_count() - (int(sys.argv[1]) > 0) <= before[0] + 1
torch.save(model.state_dict(), "model.pt")
print(loss.item())
"""
LINES = PROGRAM.splitlines()
LOOP = [LINES.index(line) + 1 for line in LINES if "while time.thread_time()" in line or "total = sum" in line]


def trained(folder: Path, *options: str, workers: int = 0) -> tuple[str, bytes]:
    """What the program prints, and its checkpoint."""
    (folder / "train.py").write_text(PROGRAM)
    done = subprocess.run(
        [*SONDE, *options, "train.py", str(workers)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout, (folder / "model.pt").read_bytes()


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with samples and a loader worker."""
    folder = tmp_path_factory.mktemp("sampled")
    trained(folder, "--sample", "100", workers=1)
    (run,) = (folder / "runs").iterdir()
    return run


def test_untracked_time_has_the_line_of_the_program(sampled: Path) -> None:
    """Most of it is in the function that computes there."""
    with open_run(sampled) as run:
        rows = run.sql(
            "SELECT function, line, sum(dur_ns) FROM samples WHERE phase = 'residual' GROUP BY ALL ORDER BY 3 DESC"
        ).fetchall()
        ((whole,),) = run.sql("SELECT sum(dur_ns) FROM samples WHERE phase = 'residual'").fetchall()
        ((tracked,),) = run.sql("SELECT sum(residual_ns) FROM steps").fetchall()
    own = sum(dur for function, line, dur in rows if function == "summarize" and line in LOOP)
    assert own > 0.7 * whole
    assert 0.5 * tracked < whole < 1.5 * tracked


def test_the_finding_names_the_function_and_its_line(sampled: Path) -> None:
    """Also without a span of the program's own."""
    with open_run(sampled) as run:
        (finding,) = [one for one in diagnose(run).findings if one.kind == "RESIDUAL_HEAVY"]
    assert any(f"summarize (train.py:{line})" in finding.why for line in LOOP)
    assert finding.next == "Make summarize cheaper, or do it less often."
    assert finding.evidence["lines"][0]["function"] == "summarize"


def test_a_gap_that_is_taken_for_waiting_names_its_function_too(tmp_path: Path) -> None:
    """Without a loader, nobody knows whether a function in the loop loads data."""
    loop = "for batch in torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=int(sys.argv[1])):"
    assert loop in PROGRAM
    program = PROGRAM.replace(loop, "for batch in torch.ones(60, 4, 8):")
    (tmp_path / "train.py").write_text(program)
    subprocess.run([*SONDE, "--sample", "100", "train.py", "0"], cwd=tmp_path, check=True, timeout=120)
    (path,) = (tmp_path / "runs").iterdir()
    with open_run(path) as run:
        (finding,) = [one for one in diagnose(run).findings if one.kind == "INPUT_BOUND"]
    assert "summarize (train.py:" in finding.why
    assert finding.next == "Make summarize cheaper, or do its work while the current step computes."


def test_a_loader_worker_is_sampled_too(sampled: Path) -> None:
    """It spends its time where it makes items."""
    with open_run(sampled) as run:
        rows = run.sql(
            "SELECT function FROM samples WHERE worker = 0 AND thread = 'MainThread' GROUP BY 1 ORDER BY sum(dur_ns) DESC"
        ).fetchall()
    assert ("Data.__getitem__",) in rows


def test_other_threads_have_no_phase(sampled: Path) -> None:
    """Only the thread that trains has steps."""
    with open_run(sampled) as run:
        rows = run.sql("SELECT DISTINCT thread, worker FROM samples WHERE phase IS NOT NULL").fetchall()
    assert rows == [("MainThread", None)]


def test_the_stacks_are_exported_for_flame_graph_tools(sampled: Path, tmp_path: Path) -> None:
    """Each line is a stack, the phase before it, and its ns."""
    with open_run(sampled) as run:
        count = stacks.export(run, tmp_path / "out.folded")
    lines = (tmp_path / "out.folded").read_text("ascii").splitlines()
    assert len(lines) == count
    found = [line for line in lines if "MainThread;residual;" in line and "summarize (train.py:" in line]
    assert sum(int(line.rpartition(" ")[2]) for line in found) > 100_000_000


def test_training_is_the_same_with_and_without_samples(tmp_path: Path) -> None:
    """The same loss, the same checkpoint byte for byte; and without the option there is no sample."""
    assert trained(tmp_path, "--sample", "500") == trained(tmp_path)
    runs = sorted((tmp_path / "runs").iterdir())
    counts: list[int] = []
    for path in runs:
        with open_run(path) as run:
            counts += [row[0] for row in run.sql("SELECT count(*) FROM samples").fetchall()]
    assert sorted(map(bool, counts)) == [False, True]


def test_a_failing_look_ends_sampling_and_nothing_else(tmp_path: Path) -> None:
    """A mark says so."""
    (tmp_path / "fail.py").write_text(
        "from sonde.probes.sampling import sample\n"
        "def fail(self): raise ValueError('wrong')\n"
        "sample.StackSampler.look = fail\n"
        "import sys; sys.argv[1:] = ['0']\n" + PROGRAM
    )
    done = subprocess.run(
        [*SONDE, "--sample", "100", "fail.py"], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=True
    )
    assert done.stderr.count("sampling stacks") == 1
    (path,) = (tmp_path / "runs").iterdir()
    with open_run(path) as run:
        assert run.sql("SELECT name FROM events WHERE cat = 'probe.off'").fetchall() == [("sample",)]
        assert run.sql("SELECT count(*) FROM steps").fetchall() == [(30,)]


def test_a_second_sampling_in_a_recording_has_numbers_of_its_own() -> None:
    """Else its stacks would be joined with those of the first one."""
    with record() as recorded:
        for _ in range(2):
            Tree().node(sys._getframe())
            Threads().get(threading.get_ident(), 0)
    for name in (SAMPLE_FRAME, SAMPLE_THREAD):
        keys = [event["key"] for event in recorded.named(name)]
        assert len(keys) >= 2
        assert len(keys) == len(set(keys))


def test_frames_that_call_each_other_in_a_circle_end(tmp_path: Path) -> None:
    """As in a damaged run: each sample is there once."""
    with sonde.init(dir=str(tmp_path)):
        for node, caller in ((1, 0), (2, 3), (3, 2), (2, 1), (3, 1)):
            facts = {"caller": caller, "function": "f", "file": "f.py", "line": node, "own": True}
            core.mark(SAMPLE_FRAME, SAMPLE, node, facts)
        core.counter(SAMPLE_STACK, 1e6, SAMPLE, 1 << SAMPLE_THREAD_BITS | 2)
    (path,) = tmp_path.iterdir()
    with open_run(path) as run:
        assert run.sql("SELECT dur_ns FROM samples").fetchall() == [(1_000_000,)]
