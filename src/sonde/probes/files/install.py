"""Watches files, if the setting `io` says so: patches `open`, and hears Python's audit events."""

from __future__ import annotations

import builtins
import io
from typing import TYPE_CHECKING

from sonde.events import recorder
from sonde.guard import guard
from sonde.hooks import patches
from sonde.probes.files import opened, paths
from sonde.probes.files.readers import opening
from sonde.probes.files.reads import process, write_outside

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings

REASON = "to see which files are read"


def install(settings: Settings) -> Callable[[], None]:
    """Watch files from now on, also in workers that are forked from now on."""
    if not settings.io:
        return lambda: None
    serving = recorder.serving()
    paths.begin(None if serving is None else serving.run)
    opened.listen()
    replaced = [patches.replace(owner, "open", opening, REASON) for owner in (builtins, io)]
    writing = recorder.at_end(_write)
    process.on = True

    def leave() -> None:
        _write()
        process.on = False
        writing()
        for patch in replaced:
            if patch is not None:
                patches.restore(patch)

    return leave


@guard("writing which files were read")
def _write() -> None:
    write_outside()
