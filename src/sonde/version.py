"""The version of Sonde, for everything that states it; the lowest layer, so that every part can read it."""

__version__ = "0.1.0"
