"""What tests of values, traces, the watch and the black box share."""

from __future__ import annotations

from tests.flow.fixtures import few_workers, nothing_left, watch_ended

__all__ = ["few_workers", "nothing_left", "watch_ended"]
