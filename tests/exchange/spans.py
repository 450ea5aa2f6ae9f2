"""Runs for the tests of exports: trees of spans, as one thread or interleaving tasks would record them."""

from __future__ import annotations

import random

from sonde.store import record
from sonde.testing import START_NS, BuiltRecord


def nested(count: int, seed: int) -> list[BuiltRecord]:
    """Spans of one thread that nest properly, with their parents and depths."""
    chance = random.Random(seed)
    made: list[BuiltRecord] = []
    clock = START_NS

    def grow(parent: int, depth: int) -> None:
        nonlocal clock
        index, seq = len(made), len(made) + 1
        made.append(BuiltRecord(f"s{seq}", start=clock, seq=seq, parent=parent, depth=depth))
        clock += chance.randint(1, 3)
        while len(made) < count and depth < 6 and chance.random() < 0.6:
            grow(seq, depth + 1)
            clock += chance.randint(1, 3)
        made[index] = made[index]._replace(dur=clock - made[index].start)

    while len(made) < count:
        grow(0, 0)
        clock += chance.randint(1, 3)
    return made


def interleaved(tasks: int, count: int, seed: int) -> list[BuiltRecord]:
    """Spans of tasks that take turns on one thread: each nests within its task, and overlaps those of the others."""
    chance = random.Random(seed)
    made: list[BuiltRecord] = []
    stacks: list[list[int]] = [[] for _ in range(tasks)]
    for clock in range(START_NS, START_NS + 40 * count):
        stack = chance.choice(stacks)
        if stack and (len(made) >= count or len(stack) > 4 or chance.random() < 0.5):
            index = stack.pop()
            made[index] = made[index]._replace(dur=clock - made[index].start)
        elif len(made) < count:
            parent = stack[-1] + 1 if stack else 0
            made.append(
                BuiltRecord(f"s{len(made) + 1}", start=clock, seq=len(made) + 1, parent=parent, depth=len(stack))
            )
            stack.append(len(made) - 1)
    left = [index for stack in stacks for index in stack]
    for index in left:
        made[index] = made[index]._replace(flags=record.OPEN)
    return made
