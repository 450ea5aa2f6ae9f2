"""Describes, digests and copies any value."""
