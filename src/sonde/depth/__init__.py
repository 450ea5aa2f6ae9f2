"""Records some steps of a running training in depth: on request, or after something unusual."""
