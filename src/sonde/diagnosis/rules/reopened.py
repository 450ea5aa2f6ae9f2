"""FILE_REOPENED: the same file is opened and read again for every item."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import finding
from sonde.diagnosis.files import named
from sonde.finding import WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def file_reopened(facts: Facts, policy: Policy) -> Finding | None:
    """One file is opened and read again for every item, and training waits for data. Needs `--io`."""
    again, loads, whole = (
        facts.files.again,
        facts.files.items["count"].or_zero(),
        facts.speed.whole["whole"].or_zero(),
    )
    opens, size = again["opens"].or_zero(), facts.files.reads["bytes"].or_zero()
    if not loads or not whole or not size or opens < policy["file_reopened.least"]:
        return None
    waited = facts.speed.whole["input_wait"].or_zero() / whole
    share = again["bytes"].or_zero() / size
    if opens / loads < policy["file_reopened.open_share"] or share < policy["file_reopened.read_share"]:
        return None
    if waited < policy["file_reopened.warn_share"]:
        return None
    path = str(again.which["file"])
    return finding(
        "FILE_REOPENED",
        WARN,
        0.8,
        f"{named(path, again['size'].value, None)} was opened {opens:,.0f} times for {units.plural(loads, 'item')}: "
        f"{units.share(share)} of all bytes read for items.",
        f"Open {path} once in each worker, at the first item, and keep it open.",
        score=waited * share,
        figures={
            "opens": again["opens"],
            "bytes read of it": again["bytes"],
            "bytes read": facts.files.reads["bytes"],
            "size": again["size"],
            "loads": facts.files.items["count"],
            "waiting for data ns": facts.speed.whole["input_wait"],
        },
        file=path,
    )
