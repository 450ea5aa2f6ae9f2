"""The rank of a process if it is not in the environment: torch knows it once the process group exists.

It is looked for when a group is made, when the recording begins, and when training does. Workers of loaders are notified, as
those that are not forked could not know it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sonde import ranks
from sonde.events import recorder
from sonde.guard import guard
from sonde.hooks.torch.collectives import group_made
from sonde.hooks.torch.loader import start_in_workers
from sonde.hooks.torch.optimizer import optimizer_step
from sonde.probes import step

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings


def install(settings: Settings) -> Callable[[], None]:
    """Learn the rank, now or later. Only in the mode auto something is patched for it."""
    group = _RankGroup(settings.mode == "auto")
    group.learn()
    leave = [ranks.forget, group.untell, step.at_begin(group.learn)]
    if group.patches:
        leave.append(group_made.subscribe(group))

    def undo() -> None:
        while leave:
            leave.pop()()

    return undo


class _RankGroup:
    """The default process group of this process."""

    def __init__(self, patches: bool) -> None:
        self.patches = patches
        self._leave_workers: Callable[[], None] | None = None  # ends the notification of workers

    def before(self, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        """It is being made."""

    def after(self, _token: None, _result: None, error: BaseException | None) -> None:
        """It is there."""
        if error is None:
            self.learn()

    @guard("learning the rank of this process")
    def learn(self) -> None:
        """Take over what torch knows, if there is a group."""
        found = _found()
        if found is not None and _take(*found) and self.patches:
            self.untell()
            self._leave_workers = start_in_workers(begin_worker, *found)

    def untell(self) -> None:
        """Notify workers no more."""
        if self._leave_workers is not None:
            self._leave_workers()


def begin_worker(rank: int, world_size: int) -> None:
    """Called in each worker of a loader: it belongs to this rank."""
    if _take(rank, world_size):
        step.phases.on = not step.now.none  # it does not know the step: all of them count as chosen


def _found() -> tuple[int, int] | None:
    """The rank and the world size of the default group; None: there is none, or this process is not in it."""
    distributed = sys.modules.get("torch.distributed")
    made = getattr(distributed, "is_initialized", None)
    if distributed is None or made is None or not made() or distributed.get_rank() < 0:
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _take(rank: int, world_size: int) -> bool:
    """Let all know it who want to; False if they do."""
    if not ranks.learn(rank, world_size):
        return False
    serving = recorder.serving()
    if serving is not None:
        serving.become_rank()
    optimizer_step.unlead()  # its fast path may be for a rank that is recorded whole
    step.know_rank()
    return True
