"""Custom rules: functions in a Python file or queries in a TOML file, and how they are run."""
