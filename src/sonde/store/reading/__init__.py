"""Reads the files of a process back, whatever they contain."""
