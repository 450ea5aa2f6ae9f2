"""Runs in the formats of other tools, one format per file."""
