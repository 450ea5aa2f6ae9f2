"""Every threshold of the rules, in one table: `policy.toml` has the values, and a file of the user may change them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sonde.errors import PolicyError, nearest

HOME = Path(__file__).with_name("policy.toml")


@dataclass(frozen=True)
class Threshold:
    """One threshold. `changed`: the user's file gave it."""

    name: str  # "<part>.<what>"
    value: float
    unit: str
    doc: str
    changed: bool = False


class Policy:
    """The thresholds by name: `policy["input_bound.warn_share"]`."""

    def __init__(self, thresholds: dict[str, Threshold]) -> None:
        self.thresholds = thresholds

    @classmethod
    def load(cls, path: str | Path | None = None) -> Policy:
        """The thresholds of Sonde, changed by those in the file `path`. Raises PolicyError for a wrong name or value."""
        known = {
            f"{part}.{name}": Threshold(f"{part}.{name}", float(about["value"]), about["unit"], about["doc"])
            for part, names in _read(HOME).items()
            for name, about in names.items()
        }
        if path is not None:
            known |= _changes(Path(path), known)
        return cls(known)

    def __getitem__(self, name: str) -> float:
        return self.thresholds[name].value

    @property
    def parts(self) -> list[str]:
        """The parts of the table: most are rules."""
        return list(dict.fromkeys(name.partition(".")[0] for name in self.thresholds))

    def of(self, part: str) -> list[Threshold]:
        """The thresholds of one rule, or of another part of the table."""
        return [one for one in self.thresholds.values() if one.name.partition(".")[0] == part]


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PolicyError(f"Cannot read the policy {path}: {error.strerror or error}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PolicyError(f"The policy {path} is not valid TOML: {error}.") from None


def _changes(path: Path, known: dict[str, Threshold]) -> dict[str, Threshold]:
    changes = {}
    parts = sorted({name.partition(".")[0] for name in known})
    for part, names in _read(path).items():
        if part not in parts or not isinstance(names, dict):
            raise PolicyError(f"{path}: unknown policy section [{part}]. {nearest(part, parts)}")
        for name, value in names.items():
            changes[f"{part}.{name}"] = _changed(path, f"{part}.{name}", value, known)
    return changes


def _changed(path: Path, name: str, value: object, known: dict[str, Threshold]) -> Threshold:
    if name not in known:
        part = name.partition(".")[0]
        valid = [one.partition(".")[2] for one in known if one.startswith(f"{part}.")]
        raise PolicyError(
            f"{path}: [{part}] has no threshold {name.partition('.')[2]!r}. {nearest(name.partition('.')[2], valid)}"
        )
    if isinstance(value, dict):
        value = value.get("value")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise PolicyError(
            f"{path}: {name} = {value!r} is not a threshold. Give a number, 0 or more ({known[name].unit})."
        )
    before = known[name]
    return Threshold(name, float(value), before.unit, before.doc, changed=True)
