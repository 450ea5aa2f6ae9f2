"""The process behind `sonde run --push`: pushes every few minutes until the launcher reports the end of the program.

`python -m sonde.cli.live.pushloop PIPE SECONDS QUIET RUN URL [ID]`, which `launch/companion.py` starts.
"""

from __future__ import annotations

import os
import select
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from sonde.analysis.exits import ending
from sonde.errors import RemoteError, SondeError
from sonde.launch.companion import ENDED, step_aside
from sonde.remote.push import Pushed, push
from sonde.store.folder import host

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_SECONDS = 5.0
LAST_SECONDS = 60.0  # of trying again, when the program has ended and the place does not answer
PAUSE = 5.0


def main(pipe: str, seconds: str, quiet: str, run: str, url: str, id: str | None = None) -> None:
    """Push a run until its program has ended."""
    done = follow(int(pipe), float(seconds), lambda: push(Path(run), url, id, only=host(), describe=ending))
    if not int(quiet):
        print(f"sonde: pushed to {done.url}", file=sys.stderr)


def follow(descriptor: int, every: float, push: Callable[[], Pushed]) -> Pushed:
    """Push again and again; what the last push did. `descriptor` is a pipe from the launcher; its end without a word: the launcher was killed."""
    step_aside()
    failed: str | None = None
    pause = min(every, FIRST_SECONDS)  # soon, since a wrong URL should be known soon
    while True:
        ready, _, _ = select.select([descriptor], [], [], pause)
        pause = every
        word = os.read(descriptor, 1) if ready else None
        if word == ENDED:
            break
        done, failed = _tried(push, failed)
        if word == b"" and (done is None or not done.running):
            break
        if word == b"":  # the program goes on without its launcher, and so do we
            time.sleep(every)
    until = time.monotonic() + LAST_SECONDS
    while (done := _tried(push, None)[0]) is None:
        if time.monotonic() > until:
            sys.exit(1)
        time.sleep(PAUSE)
    return done


def _tried(push: Callable[[], Pushed], failed: str | None) -> tuple[Pushed | None, str | None]:
    """Push once; what fails is said once, and tried again later."""
    try:
        return push(), None
    except (SondeError, OSError) as error:
        said = str(error)
        if said != failed:
            kind = "" if isinstance(error, RemoteError) else f"{type(error).__name__}: "
            print(f"sonde: not pushed: {kind}{said}", file=sys.stderr, flush=True)
        return None, said


if __name__ == "__main__":
    main(*sys.argv[1:])
