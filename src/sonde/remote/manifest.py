"""The manifest of a host: which packs count, and what they hold, read as hostile input."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from typing import Any

from sonde.errors import RemoteError
from sonde.remote.pack import PackEntry
from sonde.store.untrusted import Fields

MANIFEST = "manifest.json"
FORMAT = 1
MOST_PACKS = 1_000_000
MOST_PROCESSES = 1_000_000
_PACK = re.compile(r"[0-9]{6,12}\.(now\.)?pack")
_TOKEN = re.compile(r"[0-9a-f]{8}")


@dataclass(frozen=True)
class Manifest:
    """What one host has pushed.

    `run` is the run folder there, `job` what all hosts of the job share, if the job has an id, and `given` whether the user chose the id of
    the place. `processes`: for each process folder the bytes, the rank and the attempt.
    """

    host: str
    token: str
    run: str
    job: str | None
    given: bool
    name: str
    started_ns: int | None
    ended_ns: int | None
    pushed_ns: int | None
    push: int  # how many there were
    sealed: bool
    running: int  # processes that had not ended
    world_size: int | None
    packs: list[PackEntry]
    now: PackEntry | None
    processes: dict[str, tuple[int, int | None, int]] = field(default_factory=dict)
    state: str = "unknown"
    ended: str = "unknown"
    sonde: str | None = None

    @property
    def prefix(self) -> str:
        """The folder of this host."""
        return prefix_of(self.host, self.token)

    @property
    def identity(self) -> str:
        """What distinguishes the runs that may have been pushed to one place."""
        return identity_of(self.job, self.given, self.name, self.run)

    @property
    def ranks(self) -> list[int]:
        """The ranks that it holds."""
        return sorted({rank for _, rank, _ in self.processes.values() if rank is not None})

    def text(self) -> bytes:
        """As JSON."""
        return json.dumps({"format": FORMAT, **asdict(self)}, separators=(",", ":")).encode()


def identity_of(job: str | None, given: bool, name: str, run: str) -> str:
    """What all hosts of a run share: the id of its job; else the name of the program, if the user gave an id; else the run folder."""
    return job or (f"program {name}" if given else run)


def prefix_of(host: str, token: str) -> str:
    """The folder of a host: its name, and what distinguishes it from another one of that name."""
    return f"{host}-{token}"


def read_manifest(content: bytes, where: str) -> Manifest:
    """The manifest in a file. Raises RemoteError if it is none."""
    try:
        fields = Fields(json.loads(content))
    except (ValueError, RecursionError):
        raise RemoteError(f"{where}/{MANIFEST} is incomplete or not a manifest. Push again from that host.") from None
    found = fields.whole("format")
    if found is None:
        raise RemoteError(f"{where}/{MANIFEST} was not written by Sonde.")
    if found != FORMAT:
        raise RemoteError(
            f"{where} was pushed in format {found}; this version of Sonde reads format {FORMAT}. Install a newer version."
        )
    token = fields.text("token") or ""
    packs = [_entry(one) for one in fields.several("packs", MOST_PACKS)]
    now = fields.plain().get("now")
    if not _TOKEN.fullmatch(token) or None in packs or (now is not None and _entry(now) is None):
        raise RemoteError(
            f"{where}/{MANIFEST} is damaged: its list of packs cannot be read. Push again from that host."
        )
    return Manifest(
        host=fields.text("host", 64) or "unknown",
        token=token,
        run=fields.text("run") or "",
        job=fields.text("job"),
        given=fields.flag("given") is True,
        name=fields.text("name") or "",
        started_ns=fields.whole("started_ns"),
        ended_ns=fields.whole("ended_ns"),
        pushed_ns=fields.whole("pushed_ns"),
        push=fields.count("push") or 0,
        sealed=fields.flag("sealed") is True,
        running=fields.count("running") or 0,
        world_size=fields.count("world_size"),
        packs=[one for one in packs if one is not None],
        now=None if now is None else _entry(now),
        processes=_processes(fields.plain().get("processes")),
        state=fields.text("state") or "unknown",
        ended=fields.text("ended") or "unknown",
        sonde=fields.text("sonde"),
    )


def _entry(value: object) -> PackEntry | None:
    if not isinstance(value, list) or len(value) != 3:
        return None
    name, size, digest = value
    if not (isinstance(name, str) and _PACK.fullmatch(name) and type(size) is int and isinstance(digest, str)):
        return None
    return PackEntry(name, size, digest)


def _processes(value: Any) -> dict[str, tuple[int, int | None, int]]:
    if not isinstance(value, dict):
        return {}
    found: dict[str, tuple[int, int | None, int]] = {}
    for name, facts in list(value.items())[:MOST_PROCESSES]:
        if isinstance(facts, list) and len(facts) == 3 and type(facts[0]) is type(facts[2]) is int:
            found[name] = facts[0], facts[1] if type(facts[1]) is int else None, facts[2]
    return found
