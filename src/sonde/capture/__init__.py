"""Traces: the values that go into and come out of functions, for a few items."""
