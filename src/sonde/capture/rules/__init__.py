"""What can be wrong with values on their way: one finding per file, each a pure function of what was seen."""
