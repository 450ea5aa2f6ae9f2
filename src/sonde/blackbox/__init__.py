"""The black box: keeps the last batches, and writes them down when training fails."""
