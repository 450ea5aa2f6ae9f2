"""Reads what a process wrote back from its files, whatever stands in them."""
