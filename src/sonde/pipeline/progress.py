"""The progress of a verb, reported to a `Progress`. Silent by default; the command line shows a bar."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """What a verb tells while it works."""

    def start(self, total: int | None, label: str) -> None:
        """A part of the work begins: an epoch, or the whole. `total` items or batches; None is not known."""

    def advance(self, count: int = 1, **numbers: float) -> None:
        """So many more are done; `numbers` such as `loss` are shown beside."""

    def say(self, line: str) -> None:
        """A line for the user, such as which weights are used."""

    def stop(self) -> None:
        """This part has ended, well or not."""


class Silent:
    """Tells nothing to anybody."""

    def start(self, total: int | None, label: str) -> None:
        """Nothing."""

    def advance(self, count: int = 1, **numbers: float) -> None:
        """Nothing."""

    def say(self, line: str) -> None:
        """Nothing: what is said is logged by the verb as well."""

    def stop(self) -> None:
        """Nothing."""


SILENT = Silent()
