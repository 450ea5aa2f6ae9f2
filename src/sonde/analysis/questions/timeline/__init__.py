"""Spans and numbers over time, in as much detail as there are pixels."""
