"""A run that still grows."""
