"""Pages as single HTML files: they open offline, ask the network for nothing, and need no script."""

from __future__ import annotations

from sonde.html.blackbox import box_page
from sonde.html.compare import comparison_page
from sonde.html.document import is_page
from sonde.html.report import page

__all__ = ["box_page", "comparison_page", "is_page", "page"]
