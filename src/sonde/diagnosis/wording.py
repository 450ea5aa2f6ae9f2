"""Numbers and names in the sentences of findings."""

from __future__ import annotations

PHASE_WORDS = {
    "input_wait": "waiting for data",
    "h2d": "copying to the device",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "the optimizer",
    "communication": "communication",
    "checkpoint": "saving checkpoints",
    "evaluation": "evaluation",
    "residual": "untracked code",
}


def ms(ns: float | None) -> str:
    """`0.42 ms`, `12 ms`, `3.4 s`."""
    if ns is None:
        return "n/a"
    if ns >= 1e9:
        return f"{ns / 1e9:,.0f} s" if ns >= 1e11 else f"{ns / 1e9:.3g} s"
    return f"{ns / 1e6:.0f} ms" if ns >= 1e8 else f"{ns / 1e6:.3g} ms"


def percent(share: float | None) -> str:
    """`34 %`."""
    if share is None:
        return "n/a"
    return f"{share:.0%}".replace("%", " %") if share >= 0.0995 else f"{share:.1%}".replace("%", " %")


def size(count: float | None) -> str:
    """`812 MB`, `3.2 GB`."""
    if count is None:
        return "n/a"
    for factor, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if count >= factor:
            return f"{count / factor:.3g} {unit}" if count < 1e3 * factor else f"{count / factor:,.0f} {unit}"
    return f"{count / 1e3:.3g} kB"


def times(ratio: float) -> str:
    """`1.5x`, `12x`."""
    return f"{ratio:.0f}x" if ratio >= 9.95 else f"{ratio:.1f}x"


def brief(value: float) -> str:
    """`0.5`, `-12.2`, `3.4e38`."""
    digits, _, power = f"{value:.3g}".partition("e")
    return f"{digits}e{int(power)}" if power else digits


def several(number: float, one: str, many: str | None = None) -> str:
    """`1 step`, `3 steps`."""
    return f"{number:,.0f} {one if number == 1 else many or one + 's'}"


def listed(names: list[str], most: int = 3) -> str:
    """`a, b and c`, `a, b, c and 4 more`."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def rank_word(rank: int | None) -> str:
    """`rank 3`; a process without one is the process."""
    return "the process" if rank is None else f"rank {rank}"
