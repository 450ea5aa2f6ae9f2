"""Rebuilds a step of a recorded run: its batches from the ledger and the dataset, its forward from a model and its weights."""

from sonde.replay.batches import Rebuilt, Replay, replay

__all__ = ["Rebuilt", "Replay", "replay"]
