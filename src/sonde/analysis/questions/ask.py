"""Prepared questions: each is a SQL file in `sql/`, whose first comment describes its answer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources

from sonde.errors import UnknownName, nearest

STEP = "$step"  # the only parameter a question may have

OVERLAP = "-- include overlap\n"  # stands for `sql/overlap.part`


@dataclass(frozen=True)
class Question:
    """A question: its name, what it answers, and its SQL."""

    name: str
    about: str
    sql: str

    def query(self, step: int | None = None) -> str:
        """The SQL for one step, or for the step that the question chooses itself. Raises UnknownName if it takes none."""
        if step is not None and STEP not in self.sql:
            raise UnknownName(f"{self.name} is not about one step: leave out --step.")
        return self.sql.replace(STEP, "NULL" if step is None else str(int(step)))


@cache
def questions() -> tuple[Question, ...]:
    """All questions, by name."""
    texts = {file.name: file.read_text("utf-8") for file in resources.files(__package__).joinpath("sql").iterdir()}
    shared = texts["overlap.part"]
    found = [
        _question(name.removesuffix(".sql"), text.replace(OVERLAP, shared))
        for name, text in texts.items()
        if name.endswith(".sql")
    ]
    return tuple(sorted(found, key=lambda one: one.name))


def question(name: str) -> Question:
    """The question of this name. Raises UnknownName with the nearest one."""
    found = {one.name: one for one in questions()}
    if name not in found:
        raise UnknownName(f"There is no question {name!r}. {nearest(name, list(found))}")
    return found[name]


def _question(name: str, text: str) -> Question:
    about = text.partition("\n")[0].removeprefix("-- ")
    return Question(name, about, text)
