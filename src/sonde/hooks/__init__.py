"""Patch points: one module per library that is patched, one undo stack, installed only after the program's own import."""

from __future__ import annotations

from sonde.hooks import loops, patches

BLIND_SPOTS = (
    "uvloop imported before sonde.init(), trio, curio: tasks of one thread share its innermost span",
    "a bare `with` inside an undecorated generator: what its consumer does meanwhile may seem to lie inside",
    "python -I, -E or -S children, and children with a cleaned environment: they do not find the run",
    "torch: persistent loader workers that were there before Sonde looked: only what they deliver is seen",
    "torch: `model.forward(...)` called directly (its children are seen), calls inside of a compiled function",
    "torch: spans in code that torch.compile turns into a graph; with fullgraph=True it refuses a bare span there",
    "torch: optimizers that are no torch.optim.Optimizer, and optimizer steps inside of a backward pass",
)


def install() -> None:
    """Follow the libraries that matter, now or when the program imports them."""
    loops.install()


def uninstall() -> None:
    """Undo what `install` did. Points (`hooks.points`) undo themselves when their last subscriber leaves."""
    loops.uninstall()


def describe() -> list[str]:
    """What is patched now, one text each."""
    return patches.describe()


__all__ = ["BLIND_SPOTS", "describe", "install", "uninstall"]
