"""Signals whose handlers raise, thrown at a program while everything that Sonde can do is switched on: each exception arrives."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.launching import script

if TYPE_CHECKING:
    from tests.integration.conftest import Programs

# Arguments: how many seconds of each kind of work, and whether values are traced.
STORM = """
    import asyncio, json, logging, random, signal, sys, threading, time, traceback
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    import sonde

    torch.set_num_threads(1)
    seconds, traced = float(sys.argv[1]), sys.argv[2] == "trace"


    class Late(Exception): pass
    class Timeout(TimeoutError): pass
    class Preempted(BaseException): pass


    raised, where, arrived, ignored, strange = 0, {}, set(), [], []
    kinds = [Late, Preempted, Timeout]
    choosy = False  # asyncio's own code does not survive an exception at any place: raise in that of a task, and of Sonde in it
    logging.disable()  # a handler of logging drops what is raised in it


    def handler(number, frame):
        global raised
        caller = frame
        while caller is not None and "/sonde/" in caller.f_code.co_filename:
            caller = caller.f_back
        if choosy and (caller is None or caller.f_code is not job.__wrapped__.__code__):
            signal.setitimer(signal.ITIMER_REAL, 0.0002)
            return
        raised += 1
        where[raised] = str(traceback.extract_stack(frame, 4))
        raise kinds[raised % len(kinds)](raised)


    def note(error):
        # Of two signals at once, the second handler raises while the first exception is on its way: that is its context.
        seen = False
        while error is not None:
            if isinstance(error, (Late, Timeout, Preempted)):
                arrived.add(error.args[0])
                seen = True
            error = error.__cause__ or error.__context__
        return seen


    def unraisable(given):  # what is raised in a callback or a finalizer, Python itself drops
        frames = []
        trace = given.exc_traceback
        while trace is not None:
            frames.append(trace.tb_frame.f_code.co_filename + ":" + trace.tb_frame.f_code.co_name)
            trace = trace.tb_next
        ours = "sonde" in repr(given.object) + repr(given.err_msg) + "".join(frames) or "WeakKey" in repr(given.object)
        if ours or not note(given.exc_value):
            ignored.append([repr(given.object), repr(given.exc_value), *frames])


    sys.unraisablehook = unraisable
    signal.signal(signal.SIGALRM, handler)
    data = TensorDataset(torch.randn(32, 4, generator=torch.Generator().manual_seed(1)))


    def fit(model, epochs=1, shuffle=False):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        losses = []
        for _ in range(epochs):
            for (x,) in DataLoader(data, batch_size=4, shuffle=shuffle):
                with sonde.span("step", args={"rows": len(x)}):
                    optimizer.zero_grad()
                    loss = model(x).square().mean()
                    loss.backward()
                    optimizer.step()
                losses.append(loss.item())
        return losses


    def net():
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


    kept = net()


    def train():
        fit(kept)


    def train_new():
        fit(net())


    def trace():
        with sonde.flow.trace(batches=1):
            fit(kept)


    @sonde.span("async work")
    async def job(name):
        with sonde.span("part"):
            await asyncio.sleep(0)
            sonde.log(value=1.0)


    async def jobs():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: note(context.get("exception")))
        for result in await asyncio.gather(*map(job, range(5)), return_exceptions=True):
            note(result) if isinstance(result, BaseException) else None


    def work_async():
        asyncio.run(jobs())


    def storm(work):
        global choosy
        choosy = work is work_async
        if work is trace:
            kinds.pop()  # a trace opens a folder, and os.path.isdir takes any OSError for an answer
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            before = raised
            torch.set_grad_enabled(True)
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0005, 0.003))
                    while raised == before:
                        work()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except BaseException as error:
                if not note(error):
                    strange.append(repr(error))


    over = False


    def beside():
        while not over:
            with sonde.span("beside"):
                sum(range(1000))
            time.sleep(0.001)


    train(), work_async()
    thread = threading.Thread(target=beside)
    thread.start()
    for work in (train, train_new, work_async, *([trace] if traced else [])):
        storm(work)
    over = True
    thread.join()
    torch.set_grad_enabled(True)
    torch.manual_seed(3)
    losses = fit(net(), epochs=3, shuffle=True)
    lost = [where[number] for number in range(1, raised + 1) if number not in arrived]
    print(json.dumps({"raised": raised, "lost": lost, "ignored": ignored, "strange": strange, "losses": losses}))
"""

MODES = [["-q"], ["-q", "--deep", "--blackbox", "--watch-nonfinite"]]


def _stormed(programs: Programs, command: list[str], seconds: float, traced: str) -> dict[str, Any]:
    path = script(programs.folder, STORM)
    done = programs.folder / "done"
    with done.open("w") as out:
        code = subprocess.run(
            [*command, str(path), str(seconds), traced],
            env=programs.environment(None), cwd=programs.folder, stdout=out, stderr=subprocess.PIPE, text=True, timeout=1200, check=False,
        )  # fmt: skip
    assert code.returncode == 0, code.stderr
    assert "Sonde failed" not in code.stderr, code.stderr
    found: dict[str, Any] = json.loads(done.read_text().splitlines()[-1])
    return found


def _compare(programs: Programs, options: list[str], seconds: float, at_least: int) -> None:
    plain = _stormed(programs, [sys.executable], 0.2, "trace")
    found = _stormed(programs, [sys.executable, "-m", "sonde", "run", *options], seconds, "trace")
    assert found["raised"] >= at_least
    assert (found["lost"], found["ignored"], found["strange"]) == ([], [], [])
    assert found["losses"] == plain["losses"]


def test_each_exception_of_a_signal_handler_arrives(programs: Programs) -> None:
    """None is lost, nothing else is raised, and the losses of a training after that are what they are without Sonde."""
    _compare(programs, MODES[1], 1.0, 20)


@pytest.mark.soak
@pytest.mark.parametrize("options", MODES, ids=["run", "everything"])
def test_each_of_thousands_of_exceptions_arrives(programs: Programs, options: list[str]) -> None:
    """The same for minutes."""
    _compare(programs, options, 30.0, 1000)
