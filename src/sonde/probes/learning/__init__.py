"""Probes of learning itself: which optimizer, and its learning rate at each step."""
