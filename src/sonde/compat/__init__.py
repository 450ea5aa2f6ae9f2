"""The names of other tools, on top of Sonde: whoever comes from one of them changes an import and nothing else."""
