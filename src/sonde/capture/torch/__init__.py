"""What a trace captures of torch without being asked."""
