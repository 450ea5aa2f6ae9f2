"""Facts about learning itself: losses, rates, layers, modes, batches and evaluations, for the rules."""
