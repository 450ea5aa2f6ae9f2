"""Listeners to the batches of loaders: called for each one delivered, each one that failed, and around collating."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.guard import guard

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.hooks.torch import loader as hooks

    # Notified of each batch: which it is, its number in the records, and the batch itself as the program gets it.
    Listener = Callable[[hooks.Batch | None, int | None, Any], None]

REPORTING = "reporting a batch"


class Failed(NamedTuple):
    """A batch that could not be made, and the item that raised; None: not known, or it was not an item that raised."""

    key: int | None
    position: int | None
    index: Any
    worker: int | None


class FailureListener:
    """Who wants to know of batches that never came. Both are called before the program gets the exception."""

    def unmade(self, failed: Failed) -> None:
        """In the process that makes batches, a worker or this one: it failed."""

    def unseen(self, batch: hooks.Batch | None, key: int | None, error: BaseException) -> None:
        """In the process that waits for them: the wait ended with this."""


class _Subscribed:
    listeners: tuple[Listener, ...] = ()
    failures: tuple[FailureListener, ...] = ()
    around: Callable[[Any], Any] | None = None  # what collates


subscribed = _Subscribed()
reporting = guard(REPORTING)


def at_delivery(listener: Listener) -> Callable[[], None]:
    """Call `listener` for each batch that a loop of this process gets, while this probe is in place; returns the end of it.

    Not in loader workers, and not for loaders inside a dataset. The indices are those in the innermost dataset, as in the
    table `items`. A listener that fails is dropped, and the failure counted.
    """

    def drop() -> None:
        subscribed.listeners = tuple(one for one in subscribed.listeners if one is not called)

    called = guard(REPORTING, then=drop)(listener)
    subscribed.listeners = (*subscribed.listeners, called)
    return drop


def around_collate(make: Callable[[Any], Any]) -> Callable[[], None]:
    """Let `make(collate)` be called in the place of what collates a batch, here and in forked workers; returns the end of it.

    It must pass on argument, result and exceptions as they are. There is one at a time.
    """
    subscribed.around = make

    def leave() -> None:
        if subscribed.around is make:
            subscribed.around = None

    return leave


def at_failure(failures: FailureListener) -> Callable[[], None]:
    """Report batches that could not be made, here and in forked workers; the returned function ends it."""
    subscribed.failures = (*subscribed.failures, failures)

    def leave() -> None:
        subscribed.failures = tuple(one for one in subscribed.failures if one is not failures)

    return leave


def report_unmade(failed: Failed) -> None:
    """A batch could not be made."""
    for failures in subscribed.failures:
        with reporting:
            failures.unmade(failed)


def report_unseen(batch: hooks.Batch | None, key: int | None, error: BaseException) -> None:
    """A wait for a batch failed."""
    for failures in subscribed.failures:
        with reporting:
            failures.unseen(batch, key, error)
