"""Batches of loaders: the fast paths of plain batches. `hooks/torch/loader.py` and `probes/loader/` do all others.

A batch is plain if it is waited for in the main thread, outside of any other wait, while training goes on and is recorded whole (`ready`
of `points`), and `account` says so.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from sonde.native.points import Outermost

Function: TypeAlias = Callable[..., Any]

def fast_path(name: str, function: Function, subscribed: Function, /) -> Outermost:
    """What stands in the place of a function of a loader. Batches that are not plain go to `subscribed`.

    `name`: "next" (`__next__` of an iterator), "index" (it asks its sampler), "put" (it sends that to a worker), "fetch"
    (a batch is made). The latter three are for a batch that is waited for by "next", "fetch" in workers too.
    """

def batches(
    *,
    most: int,  # the highest number of a batch that is plain
    main: int | None,  # the main thread
    batch: type,  # the class `Batch`
    account: Callable[
        [Any], dict[str, Any] | None
    ],  # (iterator): what is known of it, see `_account`; None: nothing yet
    plain: Callable[[Any, bool], tuple[Any, ...] | None],  # (what a sampler gave, is it a batch): its numbers
    here: Any,  # has `listeners`, called with each batch, its key and its data, and `around`, called with what collates (or None)
    ledger: Any,  # the ledger
    enter: Function,  # of the event core, as the next three
    leave: Function,
    note: Function,
    iterate_on: Function,
    wait: Any,  # the spans of a wait, a size, a fetch and an item
    samples: Any,
    fetch: Any,
    item: Any,
    items: type,  # the class `Items`
    together: Callable[[tuple[int, ...]], Any],  # (numbers): the span of a batch that is made at once
    original: Callable[[Any, Any], Any],  # (numbers, dataset): the numbers in the innermost dataset
    enter_late: Callable[[Any, int, int], None],  # (batch, key, flags): write into the ledger where C cannot
    deliver_late: Callable[[Any, Any, Any], None],  # (iterator, batch, data): it turned out not to be plain
    fail_late: Callable[[Any, BaseException], None],  # (batch, exception): the wait failed
    end_late: Callable[[int], None],  # (key of the first batch): there was no further one
    unmade: Function,  # a fetch failed: see `unmade` of `probes/loader/fetch.py`
    tick: Callable[[], object],  # called now and then,
    pause: int,  # at most once in so many ns
    worker: Any,  # in a worker: an object whose `number` is that of the batch; elsewhere None, as the next two
    fetcher: type | None,  # the class of fetchers
    inspect_fetcher: Callable[[Any], int | None]
    | None,  # (fetcher): the key of its first batch; None: its batches are not plain
) -> None:
    """Say what happens on the fast paths of batches, and take them."""

def rest() -> None:
    """Disable the fast path."""

def forget() -> None:
    """Classify all iterators again because a loop over data has begun."""

def waiting() -> bool:
    """Whether this thread waits for a plain batch."""

def coming() -> Any:
    """The plain batch that is being made for such a wait, as a `Batch`; None: there is none."""

def fetching() -> tuple[Any, Any] | None:
    """The fetcher that makes a plain batch in this thread, and what it was asked for; None: there is none."""
