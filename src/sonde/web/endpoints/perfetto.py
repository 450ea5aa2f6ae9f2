"""`/perfetto`: the run as a file for Perfetto's viewer."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from sonde.exchange import chrome
from sonde.web.asking import Ask, BadRequest, Binary

if TYPE_CHECKING:
    from sonde.analysis.run import Run

MOST_EVENTS = 2_000_000  # the viewer takes no more


def perfetto(run: Run, ask: Ask) -> object:
    """A Chrome trace, compressed."""
    if sum(row["events"] or 0 for row in run.rows) > MOST_EVENTS:
        raise BadRequest(
            f"This run has more than {MOST_EVENTS:,} events. Export it with: sonde export {run.id} --to chrome"
        )
    target = io.BytesIO()
    chrome.export(run, target, gzip=True)
    name = re.sub(r"[^\w.-]", "_", run.id, flags=re.ASCII)
    return Binary(target.getvalue(), "application/gzip", content_disposition=f'attachment; filename="{name}.json.gz"')
