"""The state of the loader probe in this process and thread, and how it is disabled."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from sonde.hooks.torch import loader as hooks
from sonde.probes.disable import probe_guard
from sonde.probes.loader import ledger
from sonde.store.probe import batch_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.probes.loader.fetch import Fetch

DOING = "following a loader"


class _LoaderThread(threading.local):
    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.main = threading.get_ident() == threading.main_thread().ident
        self.waits = 0  # that run in this thread, inside each other
        self.fetch: Fetch | None = None


class _LoaderProcess:
    worker = False  # it is a loader worker
    undo: tuple[Callable[[], None], ...] = ()


thread = _LoaderThread()
process = _LoaderProcess()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=thread.forget)


def leave() -> None:
    """Follow loaders no longer."""
    ledger.end()
    hooks.rest()
    undo, process.undo = process.undo, ()
    for each in reversed(undo):
        each()


following = probe_guard("loader", DOING, leave)


def key_of(batch: hooks.Batch | None) -> int | None:
    """The number of a batch in the records; None if it is not known which it is."""
    if batch is None or batch.loader is None or batch.number is None:
        return None
    return batch_key(batch.loader, batch.round, batch.number)
