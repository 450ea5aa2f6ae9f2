"""What is wrong with a run, how it is known, and what to do first: pure rules over its tables."""
