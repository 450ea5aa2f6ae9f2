"""What several commands take: runs, options for the program, where to seal."""
