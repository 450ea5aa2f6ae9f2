"""This process seen from inside: memory, load, threads, disk; and the machine, if no launcher samples it.

There is no thread for it. The places that the program comes by anyway, the end of a step and the delivery of a batch, call
`tick`, and when half a second has passed since the last time, it looks; more often at the start, since what goes wrong with memory
often does so at once. A program that hangs is seen by the launcher only.
"""

from __future__ import annotations

import os
import sys
from time import monotonic_ns, process_time_ns
from typing import TYPE_CHECKING, Any

from sonde import ranks, system
from sonde.events import core
from sonde.guard import guard
from sonde.probes import step
from sonde.probes.process import allocator, stacks
from sonde.store.probe import MEMORY, SYSTEM, WAITED

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings

EVERY_NS = 500_000_000
FIRST_NS = 20_000_000  # at the start
OFTEN = 20  # looks while the time since the first one doubles, about
NEVER = 2**63
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
THREADS, RSS = 17, 21  # fields of /proc/self/stat, counted from the one behind the name


class _LastLook:
    """What was seen last."""

    def __init__(self) -> None:
        self.due = NEVER
        self.machine = False  # nobody else looks at the machine
        self.renew()

    def renew(self) -> None:
        """In a process that has just begun, or was just forked."""
        self.pid = os.getpid()
        self.begun = 0  # the first look
        self.wall = 0
        self.cpu = 0
        self.torch_threads: int | None = None

    def in_child(self) -> None:
        """After a fork: the machine is the parent's business."""
        self.renew()
        self.machine = False
        self.due = NEVER if self.due == NEVER else 0


_now = _LastLook()
_looks: list[Callable[[], None]] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_now.in_child)


def install(settings: Settings) -> Callable[[], None]:
    """Look now and then, from now on."""
    _now.renew()
    _now.machine = settings.run is None and ranks.current().local_rank in (None, 0)
    _now.due = 0
    ends = step.at_update(tick)

    def leave() -> None:
        _now.due = NEVER
        ends()

    return leave


def at_look(callback: Callable[[], None]) -> Callable[[], None]:
    """Call at each look, about twice a second, between two steps or at a delivery. Returns what ends that."""
    _looks.append(callback)
    return lambda: _looks.remove(callback) if callback in _looks else None


def tick() -> None:
    """The program comes by: look, if it is time."""
    if monotonic_ns() >= _now.due:
        _look()


@guard("sampling this process")
def _look() -> None:
    now = monotonic_ns()
    _now.begun = _now.begun or now
    _now.due = now + min(EVERY_NS, max(FIRST_NS, (now - _now.begun) // OFTEN))
    stacks.alive()
    for callback in _looks:
        callback()
    if step.phases.on:
        _record()


def _record() -> None:
    _load()
    _memory()
    _disk()
    _torch()
    if _now.machine:
        _machine()


def _load() -> None:
    """CPU time per time, in percent: 100 is one core. The first look has nothing to compare with. And the wait for a core."""
    wall, cpu = monotonic_ns(), process_time_ns()
    if _now.wall and wall > _now.wall:
        core.counter("cpu", 100.0 * (cpu - _now.cpu) / (wall - _now.wall), SYSTEM, _now.pid)
    _now.wall, _now.cpu = wall, cpu
    waited = (system.text("/proc/thread-self/schedstat") or "").split()
    if len(waited) > 1:  # since the thread began; what the kernel counts beside it is time on a core
        core.counter(WAITED, int(waited[1]), SYSTEM, _now.pid)


def _memory() -> None:
    text = system.text("/proc/self/stat")
    if text is None:
        return
    fields = text.rpartition(")")[2].split()  # a name may have blanks and brackets
    core.counter("rss", int(fields[RSS]) * PAGE, MEMORY, _now.pid)
    core.counter("threads", int(fields[THREADS]), SYSTEM, _now.pid)
    peak = (system.text("/proc/self/status") or "").partition("VmHWM:")[2].split()
    if peak:  # the most that it ever had, also between two looks
        core.counter("rss.peak", int(peak[0]) * 1024, SYSTEM, _now.pid)


def _disk() -> None:
    text = system.text("/proc/self/io")
    if text is None:
        return
    for line in text.splitlines():
        name, _, number = line.partition(":")
        if name in ("read_bytes", "write_bytes"):
            core.counter(f"disk.{name.removesuffix('_bytes')}", int(number), SYSTEM, _now.pid)


def _machine() -> None:
    ram = system.ram()
    if ram is not None:
        core.counter("ram.total", ram.limit, SYSTEM, 0)
        core.counter("ram.used", ram.used, SYSTEM, 0)
    usage = system.usage(_now.pid)
    if usage is not None:
        core.counter("cgroup.limit", usage.limit, SYSTEM, 0)
        core.counter("cgroup.used", usage.used, SYSTEM, 0)


def _torch() -> None:
    torch: Any = sys.modules.get("torch")
    threads = torch.get_num_threads() if hasattr(torch, "get_num_threads") else None  # not while it is being imported
    if threads is not None and threads != _now.torch_threads:
        _now.torch_threads = threads
        core.counter("torch.threads", threads, SYSTEM, _now.pid)
        core.counter(
            "cores",
            len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            SYSTEM,
            0,
        )
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and hasattr(cuda, "is_initialized") and cuda.is_initialized():
        _devices(cuda)


def _devices(cuda: Any) -> None:
    """The allocator's own numbers; its peak is that since the program last reset it."""
    core.counter("device.allocated", cuda.memory_allocated(), MEMORY, _now.pid)
    core.counter("device.reserved", cuda.memory_reserved(), MEMORY, _now.pid)
    core.counter("device.peak", allocator.highest(cuda), MEMORY, _now.pid)
