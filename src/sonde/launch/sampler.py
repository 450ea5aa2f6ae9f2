"""Samples the processes of a program from outside, once a second, and more often at the start: memory, load, threads, disks."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

from sonde import ranks, system
from sonde.events import core
from sonde.guard import guard
from sonde.launch import blindspots, energy, gpu
from sonde.launch.packer import Packer
from sonde.store.probe import MEMORY, PROCESS, SYSTEM, UNSEEN
from sonde.store.record import ESSENTIAL
from sonde.store.redact import redact

SECONDS = 1.0
FIRST_SECONDS = 0.1  # at the start
OFTEN = 10  # looks while the time since the start doubles, about
SHARE = 0.02  # of one core: what looking may cost; on a machine with thousands of processes it is done less often
MANY = 200_000  # samples of processes, about 50 MB: from then on they are taken less and less often
YOUNG = 0.1  # seconds: a process that was just forked is still the image of its parent
MOST_NOTICES = 5
JOIN_SECONDS = 5.0
LEAVE_SECONDS = 0.5  # for children that are on their way out when the program ends
GONE = (psutil.NoSuchProcess, psutil.AccessDenied, OSError)


class _Followed:
    """A process of the tree, and what was done with it."""

    __slots__ = ("again", "checked", "delays", "process", "time")

    def __init__(self, process: psutil.Process) -> None:
        self.process = process
        self.checked = False
        self.again = False  # its load is that since the last sample: the first one has none
        self.delays: dict[str, int] = {}  # how long each of its threads has waited for a core, in ns
        self.time = time.monotonic_ns()
        with suppress(*GONE):
            process.cpu_percent(None)
            self.delay()

    def delay(self) -> float:
        """How long its threads have waited for a core since the last time, in % of one core."""
        pid, before, begun = self.process.pid, self.delays, self.time
        self.time = time.monotonic_ns()
        self.delays = {}
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(*GONE, ValueError, IndexError), open(f"/proc/{pid}/task/{task}/schedstat") as file:
                self.delays[task] = int(file.read().split()[1])
        waited = sum(ns - before.get(task, ns) for task, ns in self.delays.items())
        return 100.0 * waited / max(1, self.time - begun)


class Sampler:
    """A thread that takes samples of the tree below a process. `told`: it was told already that this one cannot be seen."""

    def __init__(self, pid: int, run: str, cap: int, *, reported: bool = False) -> None:
        self.notices: list[str] = []
        self.pythons: set[str] = set()  # the interpreters that were seen
        self._root = pid
        self._first = ranks.is_first_on_host()  # of several launchers on one host, one is enough
        self._reported = reported
        self._run = run
        self._known: dict[psutil.Process, _Followed] = {}
        self.unseen = 0  # Pythons that Sonde does not reach
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="sonde sampler", daemon=True)
        self._gpus = gpu.NvidiaDevices()
        self._packages = energy.Packages()
        self._packer = Packer(run, cap)
        psutil.cpu_percent(None)  # the load since the call before: the first one has none

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Take no more samples."""
        self._done.set()
        self._thread.join(timeout=JOIN_SECONDS)
        self._packer.stop()
        if self.unseen > MOST_NOTICES:
            self.notices.append(f"{self.unseen - MOST_NOTICES} more processes could not be recorded.")

    def look_after(self) -> None:
        """Note which processes the program has left behind."""
        left = [one for one in self._known if one.pid != self._root]
        until = time.monotonic() + LEAVE_SECONDS
        while (left := [one for one in left if _runs(one)]) and time.monotonic() < until:
            time.sleep(LEAVE_SECONDS / 20)
        if left:
            pids = ", ".join(str(one.pid) for one in left)
            self.notices.append(f"The program has ended, but these of its processes are still running: {pids}.")

    def _loop(self) -> None:
        pause, samples, start = 0.0, 0, time.monotonic()
        while not self._done.wait(pause):
            begun = time.thread_time()
            self.sample()
            samples += len(self._known) + 1
            young = max(FIRST_SECONDS, (time.monotonic() - start) / OFTEN)
            pause = max(min(SECONDS, young), (time.thread_time() - begun) / SHARE, samples / MANY)

    def sample(self) -> None:
        """Look once."""
        if self._first:
            with guard("sampling the host"):
                self._host()
            with guard("packing records"):
                self._packer.look()
        with guard("sampling the program's processes"):
            for followed in self._tree():
                self._process(followed)
        with guard("sampling the GPUs"):
            self._gpus.sample()

    def _tree(self) -> list[_Followed]:
        try:
            root = psutil.Process(self._root)
            found = [root, *root.children(recursive=True)]
        except GONE:
            found = []
        self._known = {process: self._known.get(process) or _Followed(process) for process in found}
        return list(self._known.values())

    # ── one process ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _process(self, followed: _Followed) -> None:
        process = followed.process
        with process.oneshot():
            if not _runs(process):  # the kernel tells 0 of a dead one that nobody has waited for
                return
            self._take("rss", MEMORY, process.pid, lambda: _memory(process))
            self._take("threads", SYSTEM, process.pid, process.num_threads)
            self._take("disk.read", SYSTEM, process.pid, lambda: process.io_counters().read_bytes)
            self._take("disk.write", SYSTEM, process.pid, lambda: process.io_counters().write_bytes)
            if followed.again:
                self._take("cpu", SYSTEM, process.pid, lambda: process.cpu_percent(None))
                self._take("cpu.delay", SYSTEM, process.pid, followed.delay)
            if not followed.checked:
                followed.checked = self._check(process)
        followed.again = True

    def _take(self, name: str, cat: str, key: int, value: Callable[[], float]) -> None:
        """Record a value; what cannot be had (the process is gone, or not ours) is missing, not 0."""
        try:
            core.counter(name, value(), cat, key)
        except GONE:
            return

    def _check(self, process: psutil.Process) -> bool:
        """Find out whether a process is a Python that Sonde does not reach; False if it is too early to tell."""
        try:
            if time.time() - process.create_time() < YOUNG:
                return False
            command, program = process.cmdline(), process.exe()
        except GONE:
            return True
        if command and (blindspots.is_python(program) or blindspots.is_python(command[0])):
            self.pythons |= _interpreter(process, command[0], program)
            reason = blindspots.ignored(["python", *command[1:]]) or blindspots.cleaned(process.pid, self._run)
            if reason is not None:
                self._report(process.pid, redact(command), reason)
        return True

    def _report(self, pid: int, command: list[str], reason: str) -> None:
        core.mark(UNSEEN, PROCESS, pid, {"command": command, "reason": reason}, ESSENTIAL)
        self.unseen += 1
        if not (pid == self._root and self._reported) and self.unseen <= MOST_NOTICES:
            shown = " ".join(command)[:80]
            self.notices.append(f"Cannot record process {pid} ({shown}): {reason}.")

    # ── the host ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _host(self) -> None:
        memory = psutil.virtual_memory()
        core.counter("cpu", psutil.cpu_percent(None), SYSTEM, 0)
        core.counter("ram.total", memory.total, SYSTEM, 0)
        core.counter("ram.used", memory.total - memory.available, SYSTEM, 0)
        self._packages.sample()
        disks = psutil.disk_io_counters()
        if disks is not None:
            core.counter("disk.read", disks.read_bytes, SYSTEM, 0)
            core.counter("disk.write", disks.write_bytes, SYSTEM, 0)
        usage = system.usage(os.getpid())
        if usage is not None:
            core.counter("cgroup.limit", usage.limit, SYSTEM, 0)
            core.counter("cgroup.used", usage.used, SYSTEM, 0)


def _interpreter(process: psutil.Process, named: str, program: str) -> set[str]:
    """The path that a Python was started by; nothing if it may be ours as well as any other venv's."""
    found = program
    with suppress(*GONE):
        found = blindspots.interpreter(named, program, process.cwd(), blindspots.path_of(process.pid))
    return set() if found == program == os.path.realpath(sys.executable) else {found}


def _memory(process: psutil.Process) -> int:
    """The bytes that it has in memory. One that has none is at its end, although the kernel may still say that it runs."""
    size: int = process.memory_info().rss
    if size == 0:
        raise psutil.NoSuchProcess(process.pid)
    return size


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except GONE:
        return False
