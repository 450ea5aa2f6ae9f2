"""The colours of pages, for light and dark. The front end in `frontend/` reads the same file.

Waiting is warm, computing cool. Every two phases differ for people with any kind of colour blindness; a test measures that.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PALETTE: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
LIGHT, DARK = "light", "dark"
PHASES: dict[str, dict[str, str]] = PALETTE["phases"]
LINES: list[str] = PALETTE["lines"]


def variables(theme: str) -> str:
    """All colours of a theme as CSS variables."""
    phases = {phase: colours[theme] for phase, colours in PHASES.items()}
    return "".join(f"--{name}:{colour};" for name, colour in {**PALETTE[theme], **phases}.items())
