"""torch.profiler for some steps: made ready, started, ended, and its trace written."""

from __future__ import annotations

from time import monotonic_ns
from typing import Any

from sonde.hooks.torch import private
from sonde.store.folder import PROFILE_SYNC

MARKS = 20  # the first ones are slow


class TorchProfile:
    """One recording of torch.profiler. All methods are to be called by the thread that trains, which has imported torch."""

    def __init__(self) -> None:
        """Raises RuntimeError if the program is profiling itself."""
        from torch import profiler

        _refuse_second()
        self._library: Any = profiler
        wanted = {profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA} & self._library.supported_activities()
        self._profile = profiler.profile(activities=wanted, record_shapes=True)

    def prepare(self) -> None:
        """Do what takes long."""
        self._profile.prepare_trace()

    def start(self) -> None:
        """From here on everything is recorded. Marks say when that was on the clock of our own records; the quickest counts."""
        _refuse_second()
        self._profile.start_trace()
        for _ in range(MARKS):
            with self._library.record_function(f"{PROFILE_SYNC}{monotonic_ns()}"):
                pass

    def stop(self, path: str) -> None:
        """End, and write the trace."""
        import torch

        if torch.cuda.is_available():
            torch.cuda.synchronize()  # kernels of the last step
        self._profile.stop_trace()
        self._profile.export_chrome_trace(path)


def _refuse_second() -> None:
    if private.profiling():
        raise RuntimeError("the program is using torch.profiler itself")
