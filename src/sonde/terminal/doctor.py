"""Draws what `sonde doctor` found: whether recording works here, how, and what it cannot see."""

from __future__ import annotations

from dataclasses import dataclass, field

from rich.console import Console
from rich.text import Text

from sonde import units
from sonde.terminal.layout import grid, heading, items, note, pairs
from sonde.terminal.table import TextColumn

MOST_PATCHED = 3  # for one reason


@dataclass(frozen=True)
class SettingRow:
    """A setting, its value, and where that came from."""

    name: str
    value: str
    source: str


@dataclass(frozen=True)
class FolderCheck:
    """Where runs go."""

    path: str
    filesystem: str | None
    writes: str  # mapped, mapped elsewhere, block
    why: str
    free: int | None


@dataclass(frozen=True)
class Proof:
    """What came of a real recording: what it said of itself, and what was read back."""

    ok: bool
    told: str
    patched: list[str] = field(default_factory=list)
    failures: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Examination:
    """All that the doctor found."""

    sonde: str
    python: str
    program: str
    platform: str
    core: str
    core_note: str | None  # why not the C core
    enabled: bool | None
    folder: FolderCheck
    proof: Proof
    settings: list[SettingRow]
    unseen: list[str]
    extras: dict[str, str | None]


def draw_examination(found: Examination, console: Console) -> None:
    """The verdict first, then how recording is done here and what it cannot see."""
    _verdict(found, console)
    heading(console, "how")
    folder = found.folder
    pairs(
        console,
        {
            "core": "C" if found.core == "c" else f"Python, because {found.core_note}",
            "writes": f"{folder.writes}: {folder.why}",
            "runs in": folder.path,
            "file system": f"{folder.filesystem or 'unknown'}, {units.size(folder.free)} free",
            "sonde": found.sonde,
            "python": f"{found.python}, {found.program}",
            "platform": found.platform,
        },
    )
    _settings(found, console)
    heading(console, "patched in a recorded program")
    items(console, _by_reason(found.proof.patched) or ["nothing"])
    heading(console, "cannot be seen")
    items(console, found.unseen)
    heading(console, "optional libraries")
    pairs(console, {name: version or "not installed" for name, version in found.extras.items()})


def _by_reason(patched: list[str]) -> list[str]:
    """Each reason once, with the functions that are patched for it."""
    reasons: dict[str, list[str]] = {}
    for one in patched:
        name, _, reason = one.partition(": ")
        reasons.setdefault(reason, []).append(name)
    return [f"{_first(names)}: {reason}" for reason, names in reasons.items()]


def _first(names: list[str]) -> str:
    more = len(names) - MOST_PATCHED
    return ", ".join(names[:MOST_PATCHED]) + (f" and {more} more (--json lists them)" if more > 0 else "")


def _verdict(found: Examination, console: Console) -> None:
    ok = found.proof.ok
    console.print(Text("Recording works" if ok else "Recording does not work", "bold green" if ok else "bold red"))
    note(console, f"{found.proof.told}.")
    for place, count in found.proof.failures.items():
        note(console, f"Failed {units.plural(count, 'time')} while {place}.", "yellow")
    if found.enabled is False:
        note(
            console,
            "Recording is off: the setting `enabled` (SONDE) is 0.",
            "yellow",
        )


def _settings(found: Examination, console: Console) -> None:
    heading(console, "settings")
    rows = found.settings
    grid(
        console,
        [
            TextColumn("setting", [one.name for one in rows], right=False),
            TextColumn("value", [one.value for one in rows], right=False, least=20),
            TextColumn("from", [one.source for one in rows], right=False, need=1, least=7),
        ],
    )
