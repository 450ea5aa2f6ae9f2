"""What recording adds to a step of training: single steps with and without it, in ABBA order, CPU time.

Each recorder runs in a process of its own, beside bare steps of the same process: python -m benchmarks.step SUBJECT ROUNDS.
What a recorder does once when it is switched on is not measured: some steps pass in between.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

# Steps after each change, before those that are measured: what is meant is the middle of a training. A change of torch's classes
# makes Python forget what it knew of the code that uses them, and it learns that again only after some fifty runs of it: after
# six steps a recorder seemed to cost a third more than in a training that was left alone.
WARM = 80
PROFILED = 10  # the same for a profiler: what it adds is far more than what Python forgets
MEASURED = 8
PARTS = 8  # of a round, each in ABBA order
FEWEST = 4
LONGEST = 4.0  # seconds for each round; a profiler that takes seconds to stop has few parts, and what it adds is large


class Subject(NamedTuple):
    """A recorder: how it is switched on and off, what a step is with it, and what it is compared with, if not the bare step.

    `warm`: steps before those that are measured. A profiler keeps all of them in memory, so it has few.
    """

    on: Callable[[], None]
    off: Callable[[], None]
    step: Callable[[], None]
    bare: Callable[[], None] | None = None
    warm: int = WARM


# ── the models ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _mlp(torch: Any) -> Callable[[], None]:
    """About 270 µs on a free core."""
    layers = [torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU()]
    return _stepping(torch, [*layers, torch.nn.Linear(64, 10)], torch.randn(32, 64), 10)


def _cnn(torch: Any) -> Callable[[], None]:
    nn = torch.nn
    layers = [nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten()]
    return _stepping(torch, [*layers, nn.Linear(400, 10)], torch.randn(8, 3, 16, 16), 10)


def _transformer(torch: Any) -> Callable[[], None]:
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0)
    encoder = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
    flat = [torch.nn.Flatten(), torch.nn.Linear(16 * 32, 10)]
    return _stepping(torch, [encoder, *flat], torch.randn(4, 16, 32), 10)


MODELS = {"MLP": _mlp, "CNN": _cnn, "transformer": _transformer}


def _stepping(torch: Any, layers: list[Any], batch: Any, classes: int) -> Callable[[], None]:
    net = torch.nn.Sequential(*layers)
    loss, optimizer = torch.nn.CrossEntropyLoss(), torch.optim.SGD(net.parameters(), lr=1e-4)
    labels = torch.randint(0, classes, (len(batch),))

    def step() -> None:
        optimizer.zero_grad()
        loss(net(batch), labels).backward()
        optimizer.step()

    return step


# ── the recorders ────────────────────────────────────────────────────────────────────────────────────────────────────


def sonde(step: Callable[[], None], folder: str, **settings: Any) -> Subject:
    from sonde import config, probes, session

    session.init(dir=folder, **settings)
    probes.uninstall()
    settled = config.load(**settings)
    return Subject(lambda: session.install_probes(settled), probes.uninstall, step)


def _trace_step(step: Callable[[], None], folder: str) -> Subject:
    from sonde.probes.tracestep import trace_step

    subject = sonde(step, folder)

    def explicit() -> None:
        with trace_step():
            step()

    return subject._replace(step=explicit, bare=_called(step))


def _called(step: Callable[[], None]) -> Callable[[], None]:
    """The step inside one more function, as it is with a block around it: a program has the block where the step is."""

    def call() -> None:
        step()

    return call


def _deep(step: Callable[[], None], folder: str) -> Subject:
    return sonde(step, folder, deep=True)


def _traceml(step: Callable[[], None], folder: str) -> Subject:
    from traceml_ai import api  # type: ignore[import-not-found]

    os.chdir(folder)  # it writes its logs where it is
    api.init(mode="auto", aggregator_host="127.0.0.1", aggregator_port=_sink(), on_missing_aggregator="raise")
    net = _torch().nn.Identity()

    def traced() -> None:
        with api.trace_step(net):
            step()

    return Subject(_nothing, _nothing, traced, _called(step))


def _sink() -> int:
    """A port of this machine that takes whatever is sent to it: TraceML records nothing without one that listens."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_drain, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    return int(server.getsockname()[1])


def _drain(connection: socket.socket) -> None:
    while connection.recv(1 << 16):
        pass


def _torch() -> Any:
    import torch

    return torch


def profiled(full: bool) -> Callable[[Callable[[], None], str], Subject]:
    def make(step: Callable[[], None], _folder: str) -> Subject:
        import torch

        running: list[Any] = []

        def on() -> None:
            running.append(
                torch.profiler.profile(
                    activities=[torch.profiler.ProfilerActivity.CPU],
                    record_shapes=full, profile_memory=full, with_stack=full,
                )
            )  # fmt: skip
            running[-1].start()

        return Subject(on, lambda: running.pop().stop(), step, warm=PROFILED)

    return make


def _viztracer(step: Callable[[], None], _folder: str) -> Subject:
    from viztracer import VizTracer  # type: ignore[import-not-found]

    tracer = VizTracer(verbose=0, tracer_entries=100_000)
    return Subject(tracer.start, tracer.stop, step)


def _nothing() -> None:
    pass


SUBJECTS: dict[str, Callable[[Callable[[], None], str], Subject]] = {
    "sonde": sonde,
    "sonde trace_step": _trace_step,
    "sonde deep": _deep,
    "traceml": _traceml,
    "torch.profiler": profiled(full=False),
    "torch.profiler full": profiled(full=True),
    "viztracer": _viztracer,
}


# ── measuring ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _timed(step: Callable[[], None], warm: int) -> list[float]:
    for _ in range(warm):
        step()
    found = []
    for _ in range(MEASURED):
        start = time.thread_time_ns()
        step()
        found.append((time.thread_time_ns() - start) / 1000)
    return found


def pairs(subject: Subject, bare: Callable[[], None], rounds: int) -> dict[str, float]:
    """µs of a bare step, and what is added to it: medians over all parts; beside it the quartiles.

    What else the machine does only ever adds to a step, in spells that are longer than a part. So a part is short, and of its
    steps with and without the fastest are compared. With nothing at all in between that was off by 0.0 and 0.4 % on a crowded
    machine after 80 parts, where the fastest steps of all parts together were off by 0.0 and 5.7 %.
    """
    plain, added = [], []
    bare = subject.bare or bare
    until = time.monotonic() + LONGEST * rounds
    for number in range(rounds * PARTS):
        if number >= FEWEST and time.monotonic() > until:
            break
        times: dict[bool, list[float]] = {False: [], True: []}
        for on in (True, False, False, True) if number % 2 else (False, True, True, False):
            if on:
                subject.on()
            times[on] += _timed(subject.step if on else bare, subject.warm)
            if on:
                subject.off()
        plain.append(min(times[False]))
        added.append(min(times[True]) - min(times[False]))
    low, middle, high = quantiles(added, n=4)
    return {"bare_us": median(plain), "added_us": middle, "low_us": low, "high_us": high}


def run(name: str, rounds: int) -> dict[str, Any]:
    """All models with one recorder, in this process."""
    import torch

    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path.cwd(), ignore_cleanup_errors=True) as folder:
        for model, make in MODELS.items():
            bare = make(torch)
            for _ in range(50):
                bare()
            try:
                results[model] = pairs(SUBJECTS[name](bare, folder), bare, rounds)
            except Exception as error:
                results[model] = {"missing": f"{type(error).__name__}: {error}"}
        if "sonde.session" in sys.modules:
            sys.modules["sonde.session"].finish()
    return results


def measure(rounds: int) -> dict[str, Any]:
    """All recorders, each in a process of its own; what it says of each model, or why it could not be measured."""
    return measure_each("benchmarks.step", SUBJECTS, rounds)


def measure_each(module: str, subjects: Iterable[str], rounds: int) -> dict[str, Any]:
    """What each subject of this module adds to each model, measured in a process of its own."""
    results: dict[str, Any] = {}
    for name in subjects:
        command = [sys.executable, "-m", module, name, str(rounds)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
            results[name] = json.loads(done.stdout.splitlines()[-1])
        except (subprocess.SubprocessError, ValueError, IndexError) as error:
            results[name] = {model: {"missing": str(error)} for model in MODELS}
    return results


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], int(sys.argv[2]))), flush=True)
    os._exit(0)  # without the peers' long farewells
