"""`should_stop()`: whether a rule of one's own has asked the program to stop."""

from __future__ import annotations

from time import monotonic_ns

from sonde.events import core, recorder
from sonde.guard import guard
from sonde.store.request import StopRequest, asked_stop

LOOK_NS = 250_000_000  # between two looks at the file


class _Seen:
    """What was seen last, and in which run."""

    run = ""
    due = 0
    request: StopRequest | None = None


@guard("looking for a request to stop", default=False)
def should_stop() -> bool:
    """True once a rule has asked this program to stop: call it after each step, and leave the loop.

    All ranks get True after the same step. False while nothing is being recorded. It costs about a microsecond, and
    reads the run folder at most four times a second.
    """
    serving = recorder.serving()
    if serving is None:
        return False
    now = monotonic_ns()
    if serving.run != _Seen.run:
        _Seen.run, _Seen.due, _Seen.request = serving.run, 0, None
    if _Seen.request is None and now >= _Seen.due:
        _Seen.due = now + LOOK_NS
        _Seen.request = asked_stop(serving.run)
    if _Seen.request is None:
        return False
    return _Seen.request.at is None or (core.get_context()[0] or 0) >= _Seen.request.at
