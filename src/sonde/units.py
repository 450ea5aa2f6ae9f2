"""Numbers as people read them: durations, sizes, counts, shares and times, each in few characters."""

from __future__ import annotations

import datetime
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MISSING = "n/a"

_DURATIONS = ((1, "ns"), (1_000, "µs"), (1_000_000, "ms"), (1_000_000_000, "s"))
_MINUTE = 60_000_000_000
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_SIZES = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
_COUNTS = ("", "k", "M", "G", "T", "P", "E")


def duration(ns: float | None) -> str:
    """`1.24 ms`, `41.3 s`, `2 min 03 s`, `1 h 02 min`, `3 d 04 h`; three digits are enough to compare two of them."""
    if ns is None:
        return MISSING
    if ns < 0:
        return "-" + duration(-ns)
    if round(ns / 1e9) >= 120:
        return _long(ns)
    for factor, unit in reversed(_DURATIONS):
        if ns / factor >= 0.9995 or factor == 1:  # what would round to 1000 of the smaller unit
            return f"{_digits(ns / factor)} {unit}" if factor > 1 else f"{ns:.0f} ns"
    raise AssertionError(ns)


def _long(ns: float) -> str:
    whole = round(ns / 1e9) * 1_000_000_000
    if whole < 2 * _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE // 1_000_000_000:02} s"
    whole = round(ns / _MINUTE) * _MINUTE
    if whole < 2 * _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE:02} min"
    whole = round(ns / _HOUR) * _HOUR
    return f"{whole // _DAY:,} d {whole % _DAY // _HOUR:02} h"


def size(count: float | None) -> str:
    """`812 B`, `4.1 kB`, `1.25 GB`: powers of 1000, as disks are sold."""
    return MISSING if count is None else _scaled(count, _SIZES, " ")


def count(number: float | None) -> str:
    """`9,999`, and from a million on `1.25 M`."""
    if number is None:
        return MISSING
    return f"{number:,.0f}" if abs(number) < 1_000_000 else _scaled(number, _COUNTS, " ")


def flops(per_s: float | None) -> str:
    """`1.25 TFLOP/s`."""
    return MISSING if per_s is None else _scaled(per_s, tuple(f"{prefix}FLOP/s" for prefix in _COUNTS), " ")


def joules(energy: float | None) -> str:
    """`12 J`, `4.10 kJ`."""
    return MISSING if energy is None else _scaled(energy, tuple(f"{prefix}J" for prefix in _COUNTS), " ")


def rate(per_s: float | None) -> str:
    """`18.3`, `1,240`, `0.213`."""
    if per_s is None:
        return MISSING
    return f"{per_s:,.0f}" if per_s >= 99.95 else f"{per_s:.3g}"


def share(part: float | None) -> str:
    """`29 %`, `4.1 %`; a share above zero that would round to it is `<0.1 %`."""
    if part is None:
        return MISSING
    if 0 < part < 0.0005:
        return "<0.1 %"
    return f"{part:.1%}".replace("%", " %") if 0 < part < 0.0995 else f"{part:,.0%}".replace("%", " %")


def text(value: object) -> str:
    """Anything, or that it is not known."""
    return MISSING if value is None else str(value)


def times(ratio: float) -> str:
    """`1.5x`, `12x`, `11,095x`."""
    return f"{ratio:,.0f}x" if ratio >= 9.95 else f"{ratio:.1f}x"


def number(value: float | None) -> str:
    """A measured value in at most six digits."""
    return MISSING if value is None else f"{value:,.6g}"


def brief(value: float) -> str:
    """A number in four digits: `0.5`, `-12.25`, `3.4e38`, `1e-9`, `NaN`, `-infinity`."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "infinity" if value > 0 else "-infinity"
    digits, _, power = f"{value:.4g}".partition("e")
    return f"{digits}e{int(power)}" if power else digits


def when(wall_ns: int | None) -> str:
    """`2025-11-15 21:12:00 CET`, in the local time of whoever reads."""
    if wall_ns is None:
        return MISSING
    try:
        moment = datetime.datetime.fromtimestamp(wall_ns / 1e9).astimezone()
    except (OverflowError, ValueError, OSError):  # a damaged file can hold any number
        return MISSING
    return moment.strftime("%Y-%m-%d %H:%M:%S %Z")


def plural(number: float, one: str, many: str | None = None) -> str:
    """`1 process`, `3 processes`: the number and the right form."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def listed(values: Sequence[object], most: int = 3) -> str:
    """`a, b and c`, `a, b, c and 4 more`."""
    names = [str(value) for value in values]
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def records(number: int | None) -> str:
    """The subject of a sentence about lost records; None is not known."""
    return "an unknown number of records" if number is None else plural(number, "record")


def _scaled(number: float, units: tuple[str, ...], gap: str) -> str:
    scaled = float(number)
    for unit in units:
        if abs(scaled) < 999.5 or unit == units[-1]:
            break
        scaled /= 1000
    text = f"{scaled:.0f}" if unit == units[0] else _digits(scaled)
    return f"{text}{gap}{unit}".rstrip()


def _digits(value: float) -> str:
    """Three significant digits, never in powers of ten."""
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
