"""Records some steps with torch.profiler, beside our own records; `exchange/imports/profiler.py` puts its events on our timeline."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from sonde import ranks
from sonde.events import core
from sonde.events.recorder import process_folder
from sonde.guard import guard
from sonde.hooks.torch.profiler import TorchProfile
from sonde.probes import step
from sonde.probes.disable import switch_off
from sonde.store.folder import FOLDER_MODE, PROFILES
from sonde.store.probe import PROBE, PROFILER

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings

DOING = "recording steps with torch.profiler"
_span = core.Span(PROFILER, PROBE)  # what it costs


def install(settings: Settings) -> Callable[[], None]:
    """Record the steps that the setting names: in rank 0, or in the ranks that were chosen."""
    if settings.profile_step is None:
        return lambda: None
    return ProfiledSteps(*settings.profile_step, settings.ranks or (0,)).watch()


class ProfiledSteps:
    """The steps from `first` up to `stop`, without that one."""

    def __init__(self, first: int, stop: int, chosen: tuple[int, ...]) -> None:
        self._first, self._stop, self._chosen = first, stop, chosen
        self._profile: TorchProfile | None = None
        self._started = False
        self._leave: list[Callable[[], None]] = []
        self._safe = guard(DOING, then=self._give_up)

    def watch(self) -> Callable[[], None]:
        """Follow the steps; the returned function ends that, and what is being recorded."""
        step.exactly(True)
        self._leave = [step.at_begin(self._look), step.at_update(self._look)]
        return self._end

    def _look(self) -> None:
        """A step is about to begin."""
        number = core.get_context()[0] or 0
        with self._safe:
            if (ranks.current().rank or 0) not in self._chosen:
                self._forget()
            elif number >= self._stop:
                self._finish()
            elif number >= self._first:
                self._start()
            elif number == self._first - 1:
                self._prepare()

    def _prepare(self) -> None:
        if self._profile is None and "torch" in sys.modules:
            with _span:
                self._profile = TorchProfile()
                self._profile.prepare()

    def _start(self) -> None:
        self._prepare()
        if self._profile is not None and not self._started:
            self._started = True
            self._profile.start()

    def _finish(self) -> None:
        profile, started = self._profile, self._started
        self._forget()
        folder = process_folder()
        if profile is not None and started and folder is not None:
            path = os.path.join(os.path.dirname(folder), PROFILES)
            with _span:
                os.makedirs(path, FOLDER_MODE, exist_ok=True)
                file = os.path.join(path, os.path.basename(folder))
                profile.stop(f"{file}.part.gz")
                os.replace(f"{file}.part.gz", f"{file}.json.gz")  # the launcher of another rank may look for it now

    def _end(self) -> None:
        with self._safe:
            self._finish()

    def _give_up(self) -> None:
        self._forget()
        switch_off("profile", DOING)

    def _forget(self) -> None:
        self._profile = None
        while self._leave:
            self._leave.pop()()
        step.exactly(False)
