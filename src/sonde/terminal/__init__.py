"""Draws views in a terminal."""
