"""The verdict on a run and nothing else, as JSON: `python -m sonde.diagnosis RUN`, for the screen of `sonde watch`.

`sonde report` says the same and much more. This one is made to need little memory: one thread, few modules, and nothing kept
that a query has freed.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

from sonde.analysis.run import Run
from sonde.diagnosis.diagnose import diagnose


def main(path: str) -> None:
    """Print the verdict on this run, and how many bytes and seconds of a core it needed."""
    with Run([path], threads=1, thrifty=True) as run:
        found = diagnose(run).verdict
    said = {"kind": found.kind, "severity": found.severity, "why": found.why, "next": found.next}
    print(json.dumps(said | {"needed": _needed(), "cpu": time.process_time()}))


def _needed() -> int | None:
    """The most that this process had in memory. What `getrusage` tells may be that of the process which started it."""
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text("utf-8")) if status.exists() else None
    return None if found is None else int(found[1]) * 1024


if __name__ == "__main__":
    main(sys.argv[1])
