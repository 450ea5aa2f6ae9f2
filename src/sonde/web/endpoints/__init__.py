"""What the server answers: one file per endpoint, or a few that belong together."""
