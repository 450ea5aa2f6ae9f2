"""What `import sonde` costs over a bare interpreter."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from statistics import median
from typing import Any

LIST_THIRD_PARTY = (
    "import sys; before = set(sys.modules); import sonde; "
    "print(*sorted(n for n, m in sys.modules.items() if n not in before and 'site-packages' in (getattr(m, '__file__', '') or '')))"
)


# As users have it: compiled files are kept.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _cpu_ms(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, env=ENVIRONMENT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def measure(rounds: int) -> dict[str, Any]:
    """CPU ms added by the import, bare and importing in turn; and what it loads of other people's."""
    added = []
    _cpu_ms("import sonde")  # compiles what is not compiled yet
    for _ in range(rounds):
        bare = _cpu_ms("pass")
        added.append(_cpu_ms("import sonde") - bare)
    loaded = subprocess.run([sys.executable, "-c", LIST_THIRD_PARTY], check=True, capture_output=True, text=True)
    return {"import_ms": median(added), "third_party": loaded.stdout.split()}
