"""Compares runs: time with its uncertainty, what else differs, and whether they are the same training."""
