"""The parts of a run folder, and what is wrong with them: manifests list all, so that a missing one is named.

Each host that sealed parts has a manifest of its own, so that the folders of several hosts can become one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde import units
from sonde.analysis.parts.summary import PartSummary, SummaryFault, read_summary
from sonde.analysis.records.locate import is_plain, stamp
from sonde.store.file import RegularFile, read_small, why
from sonde.store.folder import PULLED_FILE, host
from sonde.store.process import read_object
from sonde.store.untrusted import Fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

PARTS = "parts"  # the folder in a run folder
MANIFESTS = "manifest-*.json"
SUMMARY = "summary.json"
LEDGER = "ledger.parquet"
UNFINISHED = ".sealing-"  # how the names of unfinished files and folders begin
VERSION = 1
MOST_RUNS = 10_000  # of hosts, whose run folders were pulled into one
MAX_BYTES = 64 << 20
CHECKED = 32 << 20  # bytes of all parts, up to which each byte is checked when a run is opened
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*-[0-9]{4,9}")


class SealedPart(NamedTuple):
    """A part that is whole. `digest`: of its summary, which has those of its files."""

    name: str
    folder: Path
    summary: PartSummary
    digest: str

    def file(self, table: str) -> Path | None:
        """The file of a table; None if the part has no rows of it."""
        name = f"{table}.parquet"
        return self.folder / name if name in self.summary.files else None


class Listed(NamedTuple):
    """A line of the manifest."""

    digest: str
    processes: list[str]
    ranks: list[int]

    @property
    def words(self) -> str:
        """What the part holds, in words."""
        return _ranks(self.ranks) or units.plural(len(self.processes), "process")


class Parts(NamedTuple):
    """The parts of a run folder that are whole, all that its manifests list, and what is wrong, as sentences."""

    whole: list[SealedPart]
    listed: dict[str, Listed]
    notes: list[str]

    @property
    def processes(self) -> set[str]:
        """The processes that are read from parts."""
        return {process for part in self.whole for process in part.summary.processes}

    @property
    def lost(self) -> set[str]:
        """The processes of parts that are listed and not whole."""
        return {process for one in self.listed.values() for process in one.processes} - self.processes


NONE = Parts([], {}, [])


def manifest_of(run: Path) -> Path:
    """The manifest of what this host sealed."""
    return run / PARTS / MANIFESTS.replace("*", host())


def has_parts(run: Path) -> bool:
    """Whether a run folder has parts."""
    return bool(_found(run / PARTS))


def stamps(run: Path) -> list[tuple[str, tuple[int, int] | None]]:
    """What changes when parts are sealed."""
    return [(path.name, stamp(path)) for path in sorted((run / PARTS).glob(MANIFESTS))]


def read_parts(run: Path, id: str | None) -> Parts:
    """The parts of a run folder. `id`: of the run; None if that is not known. A run that was pulled has those of all its hosts."""
    folder = run.resolve() / PARTS
    if not folder.is_dir() or folder.is_symlink():
        return NONE
    notes: list[str] = []
    listed = _listed(folder, notes)
    ids = None if id is None else {id, *Fields(read_object(run / PULLED_FILE, [])).texts("runs", MOST_RUNS)}
    whole = []
    for name in sorted(_found(folder) if listed is None else listed):
        about = None if listed is None else listed[name]
        try:
            whole.append(_part(folder / name, ids, None if about is None else about.digest, notes))
        except SummaryFault as error:
            notes.append(_unusable(name, str(error), about))
    return Parts(whole, listed or {part.name: _line(part) for part in whole}, notes)


def checked(parts: Parts) -> Parts:
    """The parts without those whose files differ from their digests; of large runs, which would take long, all."""
    if sum(file.bytes for part in parts.whole for file in part.summary.files.values()) > CHECKED:
        return parts
    found = Parts([], parts.listed, [*parts.notes])
    for part in parts.whole:
        wrong = [name for name, file in part.summary.files.items() if _digest(part.folder / name) != file.digest]
        if wrong == [LEDGER]:
            found.whole.append(_without_ledger(part, "is damaged", found.notes))
        elif wrong:
            found.notes.append(_unusable(part.name, f"its {wrong[0]} is damaged", parts.listed.get(part.name)))
        else:
            found.whole.append(part)
    return found


def _without_ledger(part: SealedPart, fault: str, notes: list[str]) -> SealedPart:
    """A part that can do without its ledger: no other table is made of it."""
    notes.append(
        f"{PARTS}/{part.name}/{LEDGER} {fault}: the items of its batches are unknown. Restore it from a backup."
    )
    files = {name: file for name, file in part.summary.files.items() if name != LEDGER}
    return part._replace(summary=part.summary._replace(files=files))


def _unusable(name: str, fault: str, about: Listed | None) -> str:
    held = "" if about is None else f" It holds {about.words}, which no query can see."
    return f"Part {name} cannot be used: {fault}.{held} Restore {PARTS}/{name} from a backup."


def _digest(path: Path) -> str | None:
    try:
        with RegularFile(path) as file, open(file.fd, "rb", closefd=False) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return None


def _listed(folder: Path, notes: list[str]) -> dict[str, Listed] | None:
    """What the manifests list; None: not all can be read, or there is none."""
    found: dict[str, Listed] = {}
    paths = sorted(folder.glob(MANIFESTS))
    faults = [fault for path in paths if (fault := _read_manifest(path, found)) is not None]
    if not paths:
        faults = [f"{PARTS}/{MANIFESTS} is missing"]
    if not faults:
        return found
    if _found(folder):
        notes.append(f"{'; '.join(faults)}: the available parts were read; others may be missing")
    return None


def listed_by_others(run: Path) -> set[str]:
    """The parts that manifests of other hosts list."""
    found: dict[str, Listed] = {}
    for path in (run / PARTS).glob(MANIFESTS):
        if path.name != manifest_of(run).name:
            _read_manifest(path, found)
    return set(found)


def _read_manifest(path: Path, listed: dict[str, Listed]) -> str | None:
    """Add what a manifest lists; what is wrong with it."""
    try:
        found = json.loads(read_small(path, MAX_BYTES))
        if found["version"] != VERSION:
            return f"{PARTS}/{path.name} has version {found['version']!r}; this version of Sonde reads {VERSION}"
        listed |= {str(name): _read_line(one) for name, one in found["parts"].items() if _is_name(name)}
    except OSError as error:
        return f"{PARTS}/{path.name} {why(error)}"
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return f"{PARTS}/{path.name} is damaged"
    return None


def _read_line(found: dict[str, Any]) -> Listed:
    return Listed(str(found["digest"]), [str(one) for one in found["processes"]], [int(one) for one in found["ranks"]])


def _found(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [one.name for one in entries if _is_name(one.name) and one.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _is_name(name: str) -> bool:
    """Whether a part can be called so: nothing that leads elsewhere."""
    return _NAME.fullmatch(name) is not None


def _part(folder: Path, ids: set[str] | None, digest: str | None, notes: list[str]) -> SealedPart:
    """A part that is whole, by its summary and the sizes of its files. `ids`: of runs it may be of. Raises SummaryFault."""
    if not folder.is_dir() or folder.is_symlink():
        raise SummaryFault("it is missing")
    try:
        summary, found = read_summary(folder / SUMMARY)
    except (OSError, SummaryFault) as error:
        fault = why(error) if isinstance(error, OSError) else str(error)
        raise SummaryFault(f"its {SUMMARY} {fault}") from None
    if ids is not None and summary.run not in ids:
        raise SummaryFault(f"it belongs to another run, {summary.run}")
    if digest is not None and found != digest:
        raise SummaryFault(f"its {SUMMARY} does not match the manifest")
    part = SealedPart(folder.name, folder, summary, found)
    for name, file in summary.files.items():
        size = (folder / name).lstat().st_size if is_plain(folder / name) else None
        fault = "is missing" if size is None else f"has {size} of {file.bytes} bytes"
        if size != file.bytes and name != LEDGER:
            raise SummaryFault(f"its {name} {fault}")
        if size != file.bytes:
            part = _without_ledger(part, fault, notes)
    return part


def whole_part(folder: Path, id: str, processes: Iterable[str]) -> SealedPart | None:
    """A part that was sealed before, if it is whole and holds these processes; else None."""
    try:
        part = _part(folder, {id}, None, [])
    except SummaryFault:
        return None
    return part if {*part.summary.processes} <= {*processes} else None


def manifest_text(run: str, parts: Sequence[SealedPart]) -> str:
    """The manifest of these parts."""
    lines = {part.name: _line(part)._asdict() for part in sorted(parts, key=lambda part: part.name)}
    found = {"version": VERSION, "run": run, "parts": lines}
    return json.dumps(found, indent=1)


def _line(part: SealedPart) -> Listed:
    ranks = {row["rank"] for row in part.summary.rows if row["rank"] is not None}
    return Listed(part.digest, part.summary.processes, sorted(ranks))


def _ranks(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 4 to 7, 9`."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    words = [str(one[0]) if len(one) == 1 else f"{one[0]} to {one[-1]}" for one in runs]
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(words)}" if words else ""
