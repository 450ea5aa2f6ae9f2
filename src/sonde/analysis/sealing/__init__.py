"""Seals a run: the map that turns raw records of some processes into a sealed part, and the engines that run it."""
