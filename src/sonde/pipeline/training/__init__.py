"""Training: models, loops, engines, ranks, checkpoints."""
