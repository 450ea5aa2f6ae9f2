"""Rules about devices: tried with simulated values only, and not verified on a device."""
