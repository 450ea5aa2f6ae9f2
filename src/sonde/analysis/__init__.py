"""Reading a run: `run.py` opens it, `tables.py` says what can be asked, and each other file answers one question."""
