"""Sealed parts of a run: which processes each holds, its files, and a summary of its contents."""
