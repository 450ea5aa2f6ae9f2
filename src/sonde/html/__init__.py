"""A report as one HTML file: it opens offline, asks the network for nothing, and needs no script."""

from __future__ import annotations

from sonde.html.page import is_report, page

__all__ = ["is_report", "page"]
