"""Draws a run that is going on in a terminal, with Textual; what is shown is decided in views."""
