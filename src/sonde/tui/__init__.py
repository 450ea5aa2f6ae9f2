"""Draws a running run in a terminal, with Textual; views decide what is shown."""
