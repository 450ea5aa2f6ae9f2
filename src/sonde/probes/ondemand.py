"""Checks for requests to record steps in depth: one `stat` per check, while the program trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.events import recorder
from sonde.guard import guard
from sonde.probes import step
from sonde.probes.process import sampler
from sonde.store import request

if TYPE_CHECKING:
    from collections.abc import Callable


def watch(asked: Callable[[], None]) -> Callable[[], None]:
    """Call `asked` when there is a new request in the run. Returns what ends that."""
    serving = recorder.serving()
    if serving is None or recorder.is_launcher():
        return lambda: None
    last = [request.seen(serving.run)]  # an old one is not meant for us

    @guard("looking for a request to record steps in depth")
    def look() -> None:
        if step.now.begun:
            found = request.seen(serving.run)
            if found is not None and found != last[0]:
                last[0] = found
                asked()

    return sampler.at_look(look)
