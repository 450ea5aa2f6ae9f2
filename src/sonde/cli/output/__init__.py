"""How commands print and write: the terminal, its encoding, formats of answers, files and progress bars."""
