"""Waiting for batches, fetching them, and which items went into them."""
