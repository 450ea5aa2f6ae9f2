"""One question about a run per file."""
