"""The phases of a step."""
