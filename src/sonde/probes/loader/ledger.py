"""Keeps the ledger: which items are in each batch that the program gets, whatever else of it is recorded.

The probe of loaders calls it. Not in loader workers: what counts is what was delivered, and in which order.
"""

from __future__ import annotations

import os
from time import monotonic
from typing import TYPE_CHECKING

from sonde.events import args, recorder
from sonde.guard import guard
from sonde.probes.disable import probe_guard
from sonde.store import filesystem, folder
from sonde.store.ledger import EntryMaker, LedgerWriter, pack_digest, pack_text
from sonde.store.usage import BYTES, RunUsage

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings

DOING = "writing the ledger"
RETRY_S = 1.0  # after the file could not be made
MOST_TEXT = 64  # characters of a key that is no number
MOST_KEYS = args.MAX_ITEMS


class _OpenLedger:
    """The ledger of this process."""

    def __init__(self) -> None:
        self.settings: Settings | None = None  # None: nothing is kept
        self.leave: Callable[[], None] | None = None
        self.own = 0  # bytes, where the run's count cannot be shared
        self.shared = True
        self.forget()

    def forget(self) -> None:
        self.writer: LedgerWriter | None = None
        self.where: str | None = None  # the folder that it writes into
        self.packer = EntryMaker()
        self.retry_at = 0.0

    def in_child(self) -> None:
        """After a fork: the file is the parent's."""
        with guard("releasing the parent's ledger"):
            if self.writer is not None:
                self.writer.abandon()
        self.forget()


_ledger = _OpenLedger()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ledger.in_child)


def begin(settings: Settings) -> None:
    """Keep a ledger from now on."""
    if _ledger.where != recorder.process_folder():
        _close()
    _ledger.settings, _ledger.retry_at = settings, 0.0
    _ledger.leave = recorder.at_end(flush)


def end() -> None:
    """Keep it no more. The file stays open: probes may come back while the same process folder is being written."""
    leave, _ledger.leave = _ledger.leave, None
    if leave is not None:
        leave()
    flush()
    _ledger.settings = None


_keeping = probe_guard("ledger", DOING, end)


@guard("closing the ledger")
def _close() -> None:
    if _ledger.writer is not None:
        _ledger.writer.close()
    _ledger.forget()


@guard("writing out the ledger")
def flush() -> None:
    """Write out what is in memory only."""
    if _ledger.writer is not None:
        _ledger.writer.flush()


def note(key: int, items: tuple[object, ...], worker: int | None, flags: int) -> None:
    """Write down the items of a batch."""
    if _ledger.settings is None:
        return
    with _keeping:
        writer = _ledger.writer or _open()
        if writer is not None:
            entry = _ledger.packer.batch(key, items, worker, flags)
            writer.put(_named(key, items, worker, flags) if entry is None else entry)


@_keeping
def note_digest(key: int, digest: int, of_all: bool) -> None:
    """Write down the digest of a batch that was delivered; `of_all`: of everything in it, else of a sample."""
    if _ledger.settings is not None and _ledger.writer is not None:
        _ledger.writer.put(pack_digest(key, digest & (2**64 - 1), whole=of_all), 0)


def state() -> object:
    """What C needs to write down batches: the open ledger, which has `settings` and `writer`."""
    return _ledger


def _named(key: int, items: tuple[object, ...], worker: int | None, flags: int) -> bytes:
    """The entry of a batch whose items have keys that are no numbers."""
    text, _ = args.encode({"keys": list(items[:MOST_KEYS])}, MOST_TEXT)
    return pack_text(key, len(items), text, worker, flags)


# ── the file ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _open() -> LedgerWriter | None:
    """Make the file; None: not now."""
    settings, here = _ledger.settings, recorder.process_folder()
    if settings is None or here is None or monotonic() < _ledger.retry_at:
        return None
    _ledger.retry_at = monotonic() + RETRY_S
    with guard("opening the ledger"):
        with folder.opened(here) as process:
            fd = folder.open_new(process, folder.LEDGER_FILE)
        _ledger.shared = filesystem.may_map(here)
        at_once = settings.writes == "mapped" or (settings.writes == "auto" and _ledger.shared)
        _ledger.writer, _ledger.where = (
            LedgerWriter(fd, _take, os.path.join(here, folder.LEDGER_FILE), at_once=at_once),
            here,
        )
    return _ledger.writer


def _take(count: int) -> bool:
    """Count bytes of the run; False, and nothing is counted, if that would be more than it may have."""
    settings, here = _ledger.settings, recorder.process_folder()
    if settings is None or here is None:
        return False
    if _ledger.shared:
        with guard("counting the bytes of the ledger"):
            return _take_shared(os.path.dirname(here), count, settings.cap)
    _ledger.own += count
    return settings.cap <= 0 or _ledger.own <= settings.cap


def _take_shared(run: str, count: int, cap: int) -> bool:
    with folder.opened(run) as there:
        counts = RunUsage(folder.open_usage(there))
    try:
        counts.add(BYTES, count)
        if 0 < cap < counts.known[BYTES]:
            counts.add(BYTES, -count)
            return False
        return True
    finally:
        counts.close()
