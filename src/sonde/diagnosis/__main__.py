"""The verdict on a run and nothing else, as JSON: `python -m sonde.diagnosis RUN`, for the screen of `sonde watch`.

`sonde report` says the same and much more. This one is made to need little memory: one thread, few modules, and nothing kept
that a query has freed.
"""

from __future__ import annotations

import json
import sys

from sonde.analysis.run import Run
from sonde.diagnosis.diagnose import diagnose


def main(path: str) -> None:
    """Print the verdict on this run."""
    with Run([path], threads=1, thrifty=True) as run:
        found = diagnose(run).verdict
    print(json.dumps({"kind": found.kind, "severity": found.severity, "why": found.why, "next": found.next}))


if __name__ == "__main__":
    main(sys.argv[1])
