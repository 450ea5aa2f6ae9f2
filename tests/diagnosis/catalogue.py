"""One built run for each kind of finding that there is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tests.diagnosis.building import (
    crowd,
    ended,
    exited,
    failed,
    gauge,
    inside,
    iteration,
    launcher,
    phases,
    processes,
    waiting_for,
    with_records,
    without_end,
)
from tests.diagnosis.lessons import RUNS as LESSONS

from sonde.store import probe
from sonde.store.record import COUNTER, MARK
from sonde.testing import MS, START_NS, BuiltProcess, BuiltRecord

GB = 1_000_000_000


def _killed() -> list[BuiltProcess]:
    samples = [gauge("ram.total", 8 * GB, at=49), gauge("ram.used", 7.9 * GB, at=49)]
    return [*map(without_end, processes()), launcher(*samples, exited(1000, signal=9))]


def _hung() -> list[BuiltProcess]:
    first, second = processes(ranks=2)
    ends = launcher(exited(1000, signal=15, at=99), exited(1001, signal=15, at=99))
    return [inside(first, "communication.all_reduce"), inside(second, probe.FORWARD), ends]


def _crashed() -> list[BuiltProcess]:
    trainer, first, second = processes(workers=2)
    number = len(second.records) + 1
    fetch = failed(probe.FETCH, 50, key=probe.batch_key(0, 0, 36))
    broken = with_records(second, fetch, failed(probe.ITEM, 50, key=123, parent=number, depth=1))
    return [ended(trainer, "KeyError"), first, broken, launcher(exited(1000, code=1, at=51))]


def _startup() -> list[BuiltProcess]:
    (process,) = processes(phases=phases(input_wait=0))
    starts = [one for number in range(5) for one in iteration(number, START_NS + number, 400 * MS)]
    return [with_records(process, *starts)]


def _slow_items() -> list[BuiltProcess]:
    return processes(
        epoch_steps=30,
        phases=lambda rank, step: phases(input_wait=403 if step % 30 in (10, 29) else 4),
        item_ns=lambda rank, index: 400 * MS if index in (41, 121) else MS,
    )


def _with_reads(built: list[BuiltProcess], about: Callable[[int], dict[str, object]]) -> list[BuiltProcess]:
    """The same with `--io`: what is read for each item, by its index."""
    found = []
    for process in built:
        fetches = [one for one in process.records if one.name == probe.FETCH]
        items = [one for one in process.records if one.name == probe.ITEM]
        size = len(items) // max(1, len(fetches))
        named = {str(about(one.key or 0)["path"]) for one in items}
        numbers = {path: number for number, path in enumerate(sorted(named))}
        files = [
            BuiltRecord(probe.FILE, probe.IO, kind=MARK, start=START_NS, key=number, args={"path": path, "size": 1000})
            for path, number in numbers.items()
        ]
        reads = []
        for place, one in enumerate(items):
            facts = dict(about(one.key or 0))
            args = {"file": numbers[str(facts.pop("path"))], "position": place % size, "opens": 1, **facts}
            key = fetches[place // size].key
            reads.append(BuiltRecord(probe.READ, probe.IO, kind=MARK, start=one.start, key=key, args=args))
        found.append(with_records(process, *files, *reads))
    return found


def _slow_file() -> list[BuiltProcess]:
    def about(index: int) -> dict[str, object]:
        slow = index in (41, 121)
        path = "/data/slow.bin" if slow else f"/data/{index}.bin"
        return {"path": path, "calls": 1, "bytes": 10**6, "ns": 390 * MS if slow else MS // 2}

    return _with_reads(_slow_items(), about)


def _read_by_all(**facts: object) -> list[BuiltProcess]:
    def about(index: int) -> dict[str, object]:
        return {"path": f"/data/{index}.bin", **facts}

    waiting = processes(phases=phases(input_wait=40), item_ns=lambda rank, index: 4 * MS)
    return _with_reads(waiting, about)


def cold(epochs: int = 1, times: int = 10) -> list[BuiltProcess]:
    """Three epochs, of which the first ones come from the disk, and take so many times as long as those from the page cache."""
    waiting = processes(
        epoch_steps=20,
        phases=lambda rank, step: phases(input_wait=80 if step < 20 * epochs else 80 // times),
        item_ns=lambda rank, index: 16 * MS,
    )
    reads = _with_reads(waiting, lambda index: {"path": f"/data/{index}.bin", "calls": 1, "bytes": 10**6})
    return [process._replace(records=_from_disk(process.records, epochs, times)) for process in reads]


def _from_disk(records: Sequence[BuiltRecord], epochs: int, times: int) -> list[BuiltRecord]:
    found, round = [], 0
    for one in records:
        if one.name in (probe.FETCH, probe.READ):
            round = probe.read_batch_key(one.key or 0).round
        if one.name == probe.READ:
            found.append(one._replace(args={**(one.args or {}), "disk": 10**6 if round < epochs else 0}))
        elif one.name == probe.ITEM and round >= epochs:
            found.append(one._replace(dur=(one.dur or 0) // times))
        else:
            found.append(one)
    return found


def _garbage() -> list[BuiltProcess]:
    (process,) = processes(phases=phases(forward=11))
    pauses = [
        BuiltRecord(probe.GC, probe.PROBE, start=one.start + MS, dur=8 * MS, key=2, step=one.step)
        for one in process.records
        if one.name == probe.FORWARD
    ]
    return [with_records(process, *pauses)]


def _oversubscribed() -> list[BuiltProcess]:
    samples = [gauge("cpu", 99.0), gauge("cores", 4)]
    samples += [gauge("torch.threads", 4, 1000 + rank) for rank in range(4)]
    return [*processes(ranks=4), launcher(*samples)]


def _pressure() -> list[BuiltProcess]:
    samples = [gauge("ram.total", 8 * GB), gauge("ram.used", 7.9 * GB)]
    return [*processes(rss=lambda rank, step: 5 * GB), launcher(*samples)]


def _launches() -> list[BuiltProcess]:
    (process,) = processes(phases=phases(input_wait=0, forward=10, backward=10, optimizer=10))
    times = [
        BuiltRecord(
            f"{probe.DEVICE}{one.name}", probe.PROBE, kind=COUNTER, start=one.start, step=one.step, value=10 * MS
        )
        for one in process.records
        if one.name in (probe.FORWARD, probe.BACKWARD, probe.OPTIMIZER)
    ]
    return [with_records(process, *times)]


def on_devices(loads: list[float], throttled: int = 0, reserved: float = 10, peak: float = 9) -> list[BuiltProcess]:
    """Ranks that have memory on a device each, in GB, and the loads of their devices, looked at in each step."""
    built = processes(ranks=len(loads))
    moments = [one.start for one in built[0].records if one.name == probe.FORWARD]
    memory = {"device.reserved": reserved * GB, "device.peak": peak * GB, "device.allocated": peak * GB / 2}
    found = [
        with_records(
            process,
            *(
                BuiltRecord(name, probe.MEMORY, kind=COUNTER, start=moment, key=1000 + rank, value=value)
                for moment in moments
                for name, value in memory.items()
            ),
        )
        for rank, process in enumerate(built)
    ]
    looks = [
        BuiltRecord(name, probe.SYSTEM, kind=COUNTER, start=moment, key=number, value=value)
        for moment in moments
        for number, load in enumerate(loads)
        for name, value in {"gpu.load": load, "gpu.throttled": throttled, "gpu.temperature": 80.0}.items()
    ]
    return [*found, launcher(*looks)]


RUNS: dict[str, Callable[[], list[BuiltProcess]]] = {
    "KILLED": _killed,
    "HUNG": _hung,
    "CRASHED": _crashed,
    "INTERRUPTED": lambda: [ended(one, "KeyboardInterrupt") for one in processes()],
    "NON_FINITE": lambda: processes(loss=lambda step: math.nan if step > 30 else 1.0),
    **LESSONS,
    "WORKER_STARTUP": _startup,
    "SLOW_FILE": _slow_file,
    "SMALL_READS": lambda: _read_by_all(calls=1000, bytes=100_000, ns=3 * MS),
    "FILE_REOPENED": lambda: _read_by_all(path="/data/all.bin", calls=1, bytes=10**6, ns=MS),
    "COLD_READS": cold,
    "SLOW_ITEMS": _slow_items,
    "INPUT_STRAGGLER": lambda: processes(ranks=2, phases=waiting_for(1, "input_wait")),
    "COMPUTE_STRAGGLER": lambda: processes(ranks=4, phases=waiting_for(1, "forward")),
    "STRAGGLER": lambda: processes(ranks=2, phases=waiting_for(1, "residual")),
    "INPUT_BOUND": lambda: processes(workers=1, phases=phases(input_wait=40)),
    "H2D_BOUND": lambda: processes(phases=phases(h2d=40)),
    "COMM_BOUND": lambda: processes(ranks=2, phases=phases(communication=40)),
    "CHECKPOINT_HEAVY": lambda: processes(phases=lambda rank, step: phases(checkpoint=60 if step % 10 == 9 else 0)),
    "EVALUATION_HEAVY": lambda: processes(evaluate_every=10, phases=phases(evaluation=200)),
    "GC_PAUSES": _garbage,
    "STEP_DRIFT": lambda: processes(phases=lambda rank, step: phases(forward=3 + step)),
    "RESIDUAL_HEAVY": lambda: processes(phases=phases(residual=40)),
    "STEP_SPIKES": lambda: processes(phases=lambda rank, step: phases(forward=200 if step % 20 == 10 else 3)),
    "CPU_OVERSUBSCRIBED": _oversubscribed,
    "MEMORY_CREEP": lambda: processes(phases=phases(forward=100), rss=lambda rank, step: GB // 2 + GB // 100 * step),
    "MEMORY_PRESSURE": _pressure,
    "LAUNCH_BOUND": _launches,
    "GPU_THROTTLED": lambda: on_devices([90.0], throttled=0x40),
    "GPU_IMBALANCE": lambda: on_devices([95.0, 40.0]),
    "GPU_UNDERUSED": lambda: on_devices([20.0]),
    "GPU_MEMORY_UNUSED": lambda: on_devices([95.0], reserved=20),
    "COMPUTE_BOUND": processes,
    "INSUFFICIENT_DATA": lambda: processes(steps=5),
    "BALANCED": lambda: [*processes(ranks=4, phases=phases(communication=1)), crowd(own=5.0)],
}
