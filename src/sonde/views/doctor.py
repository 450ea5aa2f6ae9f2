"""What `sonde doctor` tells, as plain data; the command itself does the examining."""

from __future__ import annotations

from dataclasses import dataclass, field


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
