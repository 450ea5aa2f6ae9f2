"""From the files of a run to columns."""
