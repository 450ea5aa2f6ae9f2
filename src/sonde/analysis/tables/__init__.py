"""The tables that users query, one per file."""
