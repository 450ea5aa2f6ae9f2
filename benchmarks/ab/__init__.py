"""How often `sonde gate --ab` is right: real rounds of a small training, recorded once, and trials drawn from them."""
