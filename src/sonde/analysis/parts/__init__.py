"""Sealed parts of a run: which processes each holds, its files, and the summary that tells most of it."""
