"""The items with the highest loss, from the values given to `sonde.log_items`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sonde.analysis.questions.ask import question
from sonde.store import probe

if TYPE_CHECKING:
    from sonde.analysis.run import Run


@dataclass(frozen=True)
class HardItem:
    """An item, over all times that it was logged in training, or in evaluation. `rise`: the most by which it rose from one time to the next."""

    index: int | None
    id: str | None
    times: int
    mean: float | None
    highest: float | None
    latest: float | None
    nonfinite: int
    rise: float | None
    rise_step: int | None


@dataclass(frozen=True)
class HardItems:
    """The hardest items of one name and purpose, those with values that are not finite first. `items` and `middle`: of all items."""

    name: str
    purpose: str
    items: int
    middle: float | None  # the median of the items' means
    hardest: list[HardItem]
    untied: int  # values of this name that could not be tied to an item; reported once for each name


def hard_items(run: Run, most: int) -> list[HardItems]:
    """For each name and purpose the items with the highest mean."""
    names = run.database.source.name_counts.values()
    if not any(one.cat == probe.ITEM_VALUES for named in names for one in named):
        return []
    each, jumps = question("hardest-items").query(), question("loss-jumps").query()
    rose = (
        f'SELECT purpose, name, "index", id, arg_max(step, rise) AS step, max(rise) AS rise FROM ({jumps}) GROUP BY ALL'
    )
    rows = run.sql(
        f"""
        SELECT e.name, e.purpose, count(*) OVER same, median(e.mean) OVER same, e."index", e.id, e.times, e.mean, e.highest, e.latest,
               e.nonfinite, r.rise, r.step
        FROM ({each}) e LEFT JOIN ({rose}) r ON r.purpose IS NOT DISTINCT FROM e.purpose AND r.name = e.name
            AND r."index" IS NOT DISTINCT FROM e."index" AND r.id IS NOT DISTINCT FROM e.id
        WINDOW same AS (PARTITION BY e.name, e.purpose)
        QUALIFY row_number() OVER (PARTITION BY e.name, e.purpose ORDER BY e.nonfinite DESC, e.mean DESC NULLS LAST, e."index", e.id) <= {most}
        ORDER BY e.name, e.purpose DESC, e.nonfinite DESC, e.mean DESC NULLS LAST, e."index", e.id
        """
    ).fetchall()
    untied = dict(
        run.sql('SELECT name, count(*) FROM item_values WHERE "index" IS NULL AND id IS NULL GROUP BY name').fetchall()
    )
    found: dict[tuple[str, str], HardItems] = {}
    for name, purpose, items, middle, *item in rows:
        place = name, purpose
        if place not in found:
            found[place] = HardItems(name, purpose, items, middle, [], untied.pop(name, 0))
        found[place].hardest.append(HardItem(*item))
    return [*found.values(), *(HardItems(name, "unknown", 0, None, [], count) for name, count in untied.items())]
