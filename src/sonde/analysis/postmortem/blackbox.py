"""All sources about the end of a run: dumps of the black box, first non-finite values, the records."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sonde.analysis.postmortem.dumps import REASONS, Dump, dumps_of
from sonde.analysis.postmortem.firstnan import Birth, births

if TYPE_CHECKING:
    from sonde.analysis.run import Run


@dataclass(frozen=True)
class BlackBox:
    """All of it. `births`: of each process its first, the first of all first; `later`: non-finite losses after them.

    `unused`: births that came to nothing, since nobody used what was born.
    `unseen`: parts of models that torch.compile took, which the watch saw only as a whole.
    """

    dumps: list[Dump]
    births: list[Birth]
    unused: list[Birth]
    later: int
    unseen: list[str]
    notes: list[str]

    @property
    def main_dump(self) -> Dump | None:
        """The dump that says most: of a cause before one of its effects, and of several the first. On demand: the last.

        Of births it is that of the first one.
        """
        if not self.dumps:
            return None
        caused = [dump for dump in self.dumps if dump.reason in REASONS[:-1]]
        if not caused:
            return self.dumps[-1]
        born = self.births[0].dump if self.births else None
        return min(caused, key=lambda dump: (REASONS.index(dump.reason), dump.name != born, self.dumps.index(dump)))

    @property
    def raised(self) -> Dump | None:
        """The dump of the first exception; that of the process in which it was raised, if there is one."""
        found = [dump for dump in self.dumps if dump.raised is not None]
        return min(
            found, key=lambda dump: (dump.raised is None or dump.raised.item is None, dump.worker is None), default=None
        )


def black_box(run: Run) -> BlackBox:
    """What a run has. Never raises for what is in its files: that becomes a note."""
    notes: list[str] = []
    dumps = dumps_of(run.path, notes)
    found = births(run)
    return BlackBox(dumps, _together(run, dumps, found.first), found.unused, found.later, found.unseen, notes)


def _together(run: Run, dumps: list[Dump], marked: list[Birth]) -> list[Birth]:
    """Births from marks, each with its dump; and those of dumps whose process left no mark."""
    written: dict[tuple[str | None, int | None], Dump] = {}
    for dump in dumps:
        if dump.nonfinite is not None:
            written.setdefault((dump.host, dump.pid), dump)
    found = []
    for birth in marked:
        of = written.pop((birth.host, birth.pid), None)
        found.append(birth if of is None else dataclasses.replace(birth, dump=of.name))
    found += [_of(run, dump) for dump in written.values()]
    return _ordered(sorted(found, key=lambda birth: (birth.when_ns is None, birth.when_ns or 0, birth.rank or 0)))


def _ordered(found: list[Birth]) -> list[Birth]:
    """By time; but gradients that come of a birth in another rank, which may have been seen before it, stand behind it."""
    made = {birth.certificate.step for birth in found if birth.certificate.producer}
    echoes = [birth for birth in found if _is_echo(birth) and birth.certificate.step in made]
    return [birth for birth in found if birth not in echoes] + echoes


def _is_echo(birth: Birth) -> bool:
    return birth.certificate.where == "gradient" and not birth.certificate.producer


def _of(run: Run, dump: Dump) -> Birth:
    """The birth that a dump describes, on the clock of the run as far as its process is known there."""
    assert dump.nonfinite is not None
    offset = next((row["offset_ns"] for row in run.rows if (row["host"], row["pid"]) == (dump.host, dump.pid)), None)
    when = dump.wall_ns if offset is None or dump.monotonic_ns is None else dump.monotonic_ns + offset
    return Birth(dump.nonfinite, dump.host, dump.pid, dump.rank, dump.worker, when, dump.name)
