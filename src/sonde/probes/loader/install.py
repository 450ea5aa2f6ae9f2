"""Follows the loaders of torch, here and in their workers; plain batches go by fast paths in C (`native/loader.pyi`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde.events import core, recorder
from sonde.hooks.torch import loader as hooks
from sonde.probes import step
from sonde.probes.files import reads as files
from sonde.probes.loader import arguments, fetch, ledger, wait
from sonde.probes.loader.listeners import subscribed
from sonde.probes.loader.state import leave, process
from sonde.probes.process import sampler

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings


def install(settings: Settings) -> Callable[[], None]:
    """Follow loaders from now on, here and in workers that start from now on."""
    ledger.begin(settings)
    process.undo = (
        hooks.start_in_workers(begin_worker),
        hooks.loader_iter.subscribe(arguments.LoaderIterations()),
        hooks.next_batch.fast_path(wait.waiting),
        hooks.fetch.fast_path(fetch.fetching),
    )
    if not files.process.on:  # items are separated in Python then
        hooks.use_fast_path(_parts())
    return leave


def begin_worker() -> None:
    """Called in each worker. It does not know the step, and fetches for steps to come: all of them count as chosen."""
    process.worker = True
    number, serving = hooks.worker_number(), recorder.serving()
    if number is not None and serving is not None:
        serving.become_worker(number)
    core.set_context(-1, -1)
    step.phases.on = not step.now.none
    if files.process.on:
        files.begin_worker()
    else:
        hooks.use_fast_path(_parts(), fetch.first_key)


def _parts() -> dict[str, Any]:
    """What happens to plain batches on their fast path: see `batches` in `native/loader.pyi`."""
    return {
        "here": subscribed, "ledger": ledger.state(), "tick": sampler.tick, "pause": step.PAUSE_NS,
        "enter": core.enter, "leave": core.leave, "note": core.note,
        "iterate_on": core.iterate_on, "items": fetch.Items,
        "wait": wait.wait_span, "samples": wait.size_span, "fetch": fetch.fetch_span, "item": fetch.item_span,
        "together": fetch.together, "original": fetch.original_numbers, "unmade": fetch.unmade,
        "enter_late": wait.enter_late, "deliver_late": wait.deliver_late, "fail_late": wait.fail_late, "end_late": wait.end_late,
    }  # fmt: skip
