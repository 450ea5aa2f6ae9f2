"""The interactive charts of a report: a script, its styles and its data, in the page itself."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sonde.analysis.questions.timeline.downsample import STEP, TIME, whole
from sonde.views.series import OF_SAMPLES, OF_STEPS, lines

if TYPE_CHECKING:
    from sonde.analysis.run import Run

STATIC = Path(__file__).parent / "static"
POINTS = 600
DIGITS = 6  # of a number that is drawn


@dataclass(frozen=True)
class Interactive:
    """What a page holds for its charts. The policy of the page allows this script and no other."""

    script: str
    style: str
    data: str  # JSON


def interactive(run: Run) -> Interactive | None:
    """The charts of a run; None if there is nothing to draw, or the front end is not built."""
    script, style = STATIC / "charts.js", STATIC / "charts.css"
    found = {axis: _series(run, axis) for axis in (STEP, TIME)}
    if not script.is_file() or not any(found.values()):
        return None
    data = json.dumps(found, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return Interactive(_in_ascii(script.read_text("utf-8")), style.read_text("utf-8"), data)


def _series(run: Run, axis: str) -> dict[str, Any] | None:
    """As `/series` of the web server answers, with shorter numbers."""
    along = whole(run, axis, POINTS)
    if along is None:
        return None
    found = [asdict(one) for one in lines(run, [*OF_STEPS, *OF_SAMPLES], along, None)]
    for one in found:
        one.update({name: [_short(value) for value in one[name]] for name in ("y", "min", "max")})
    return {"axis": along.unit, "from": along.first, "to": along.last, "series": found}


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")


def _in_ascii(script: str) -> str:
    """The script in ASCII, as the page is: in texts and patterns, an escape means the same. It cannot end its element."""
    escaped = (one if one.isascii() else "".join(f"\\u{unit:04x}" for unit in _units(one)) for one in script)
    return "".join(escaped).replace("</script", "<\\/script")


def _units(character: str) -> list[int]:
    """The 16-bit units of a character, of which JavaScript has two beyond the first plane."""
    content = character.encode("utf-16-be")
    return [int.from_bytes(content[at : at + 2], "big") for at in range(0, len(content), 2)]
