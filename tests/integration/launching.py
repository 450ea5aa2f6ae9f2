"""Programs under `sonde run`, started as a person would start them."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Programs

TIMEOUT = 240

# Uses what the bootstrap has brought in, without importing it.
HERE = "import sys\nsys.modules['sonde'].mark('here')\n"

# `python sampled.py RUNS [PID]`: ends when the launcher has looked at a process several times; without PID, at this one.
SAMPLED = """
    import glob, os, struct, sys, time

    key = struct.pack("<q", int(sys.argv[2]) if len(sys.argv) > 2 else os.getpid())
    end = time.monotonic() + 100
    found = 0
    while found < 20 and time.monotonic() < end:  # up to six records for a look
        time.sleep(0.02)
        files = glob.glob(sys.argv[1] + "/*/*/rings") + glob.glob(sys.argv[1] + "/*/*/events.seg")
        found = sum(open(file, "rb").read().count(key) for file in files)
"""

TRAINING = """
    import os, sys
    import torch
    torch.set_num_threads(1)

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 12
        def __getitem__(self, index):
            return torch.ones(4) * index

    def train(rank=None, method=None):
        if rank is not None:
            os.environ["RANK"] = str(rank)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        workers = {"num_workers": 1, "multiprocessing_context": method} if method else {}
        for batch in torch.utils.data.DataLoader(Data(), batch_size=4, **workers):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
"""


def script(folder: Path, code: str, name: str = "train.py") -> Path:
    """A file with this program."""
    path = folder / name
    path.write_text(textwrap.dedent(code))
    return path


def sampled(programs: Programs) -> list[str]:
    """The script of SAMPLED and its argument, as words of a command."""
    return [str(script(programs.folder, SAMPLED, "sampled.py")), str(programs.dir)]


def start(programs: Programs, *words: str, env: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
    """Start `sonde run WORDS` in the folder of the programs."""
    usual: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": programs.folder}
    command = [sys.executable, "-m", "sonde", "run", *words]
    return subprocess.Popen(command, env=programs.environment(env), text=True, **(usual | options))


def run(
    programs: Programs, *words: str, code: int = 0, env: dict[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run `sonde run WORDS` to its end, and check its exit code."""
    return finished(start(programs, *words, env=env, **options), code, TIMEOUT)


def finished(program: subprocess.Popen[str], code: int, seconds: float) -> subprocess.CompletedProcess[str]:
    """Wait for the end of a program, and check its exit code."""
    try:
        out, err = program.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()
        for stream in (program.stdout, program.stderr):
            if stream is not None:  # its own children may hold the other end
                stream.close()
        raise
    assert program.returncode == code, f"exit code {program.returncode}\n{out}\n{err}"
    return subprocess.CompletedProcess(program.args, program.returncode, out, err)


def exits(programs: Programs) -> dict[int, tuple[int | None, int | None]]:
    """The exit code and the signal of each process whose end was noted, by its id."""
    rows = programs.rows(
        "select key, cast(args->>'code' as int), cast(args->>'signal' as int) from events "
        "where cat = 'process' and name = 'exit'"
    )
    return {key: (code, signal) for key, code, signal in rows}
