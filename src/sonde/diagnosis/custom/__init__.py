"""Rules of your own: functions in a Python file or queries in a TOML file, and how they are asked about a run."""
