"""What is known of learning itself: losses, rates, layers, modes, batches and evaluations, as the rules want it."""
