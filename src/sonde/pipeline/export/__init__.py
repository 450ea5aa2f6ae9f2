"""Exported models, and how to run them."""
