"""What coding agents ask: short answers about runs, over the Model Context Protocol or in a shell."""
