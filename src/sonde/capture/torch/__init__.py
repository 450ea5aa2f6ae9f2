"""What a trace captures of torch automatically."""
