"""Pages as single HTML files: they open offline and ask the network for nothing. Only a report may have a script, for its charts."""

from __future__ import annotations

from sonde.html.blackbox import box_page
from sonde.html.compare import comparison_page
from sonde.html.document import is_page
from sonde.html.interactive import interactive
from sonde.html.report import page

__all__ = ["box_page", "comparison_page", "interactive", "is_page", "page"]
