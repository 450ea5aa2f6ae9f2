"""Probes of learning itself: which optimizer, its learning rate at each step, and, in some steps, gradients, weights and activations."""
