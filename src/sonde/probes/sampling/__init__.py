"""Sampling: where the threads of a program are, many times a second, so that untracked time gets names."""
