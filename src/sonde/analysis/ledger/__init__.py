"""Which items went into which batch."""
