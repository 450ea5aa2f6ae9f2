"""Short answers about runs for coding agents, over the Model Context Protocol or in a shell."""
