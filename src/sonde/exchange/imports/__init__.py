"""Traces of other tools as a run: the JSON is scanned event by event, and written as records of processes."""
