"""The names of other tools, on top of Sonde: users of these change an import and nothing else."""
