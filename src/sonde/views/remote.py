"""What `sonde runs URL` shows: read from the manifests of the hosts alone, without fetching what they recorded."""

from __future__ import annotations

from sonde.errors import RemoteError
from sonde.remote.manifest import Manifest
from sonde.remote.pull import manifests
from sonde.remote.storage import RemoteFolder
from sonde.views.runs import BROKEN, RunEntry, Runs

WORST = ("recording", "died", "unknown", "ended")  # of several hosts, the first of these that one has


def list_remote(url: str, limit: int) -> Runs:
    """The runs at a URL, the newest first; of `limit` (0: all)."""
    place = RemoteFolder(url)
    entries = []
    for name in place.folders():
        entry = _entry(place.below(name))
        if entry is not None:
            entries.append(entry)
    entries.sort(key=lambda one: (one.started_ns or 0, one.id), reverse=True)
    shown = entries[:limit] if limit else entries
    return Runs(place.shown, shown, len(entries) - len(shown))


def _entry(place: RemoteFolder) -> RunEntry | None:
    """One run; None if nobody has pushed anything there."""
    try:
        found, notes = manifests(place)
    except RemoteError as error:
        found, notes = {}, [str(error)]
    if not found:
        return _broken(place, notes) if notes else None
    hosts = list(found.values())
    started = min((one.started_ns for one in hosts if one.started_ns is not None), default=None)
    ends = [one.ended_ns or one.pushed_ns for one in hosts]
    last = max((end for end in ends if end is not None), default=None)
    worst = min(hosts, key=lambda one: WORST.index(one.state) if one.state in WORST else len(WORST))
    return RunEntry(
        id=place.name,
        name=next((one.name for one in hosts if one.name), place.name),
        path=place.shown,
        state=worst.state,
        ended=worst.ended,
        sealed=all(one.sealed for one in hosts),
        started_ns=started,
        dur_ns=None if started is None or last is None else max(0, last - started),
        processes=len({process for one in hosts for process in one.processes}),
        running=[],
        size=sum(map(_size, hosts)),
        problem="; ".join(notes) or None,
    )


def _size(host: Manifest) -> int:
    return sum(one.size for one in (*host.packs, *([host.now] if host.now else [])))


def _broken(place: RemoteFolder, notes: list[str]) -> RunEntry:
    return RunEntry(place.name, place.name, place.shown, BROKEN, BROKEN, False, None, None, 0, [], 0, "; ".join(notes))
