"""The time and memory of each layer."""
