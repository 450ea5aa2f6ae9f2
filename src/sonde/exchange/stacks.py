"""Export of sampled stacks (`--sample`) as collapsed stacks, which flame graph tools and speedscope.app read.

`rank 0;MainThread;forward;main (train.py:12);relu (functional.py:17) 40000000` says how many nanoseconds a thread was seen there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from sonde.analysis.questions.samples import collapsed
from sonde.exchange.output import Progress, ignore, output_file

if TYPE_CHECKING:
    from pathlib import Path

    from sonde.analysis.run import Run


def export(run: Run, path: Path | BinaryIO, gzip: bool = False, progress: Progress | None = None) -> int:
    """Write the run to `path` (or an open binary file); returns how many stacks it holds."""
    progressed = progress or ignore
    stacks = collapsed(run)
    with output_file(path, gzip) as file:
        for done, (stack, dur) in enumerate(stacks, 1):
            file.write(f"{stack.encode('ascii', 'backslashreplace').decode()} {dur}\n")
            progressed(done, len(stacks))
    return len(stacks)
