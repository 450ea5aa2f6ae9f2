"""TensorBoard: steps as scalars, the verdict as text, the report page as a file in the folder.

sonde.trackers.tensorboard.attach("runs/today/sonde")
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sonde.trackers.attach import attach as _attach

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sonde.trackers.tracker import StepValues


def attach(folder: str | os.PathLike[str]) -> bool:
    """Write what this program records to a folder for TensorBoard; True if that has begun. Never raises."""
    return _attach("tensorboard", {"folder": os.path.abspath(folder)})


def open(_run: str, target: Mapping[str, str]) -> TensorBoard:
    """A file of events in the target's folder."""
    return TensorBoard(Path(target["folder"]))


class TensorBoard:
    """One file of events."""

    def __init__(self, folder: Path) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2
        from tensorboard.plugins.text.metadata import create_summary_metadata
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._folder = folder
        self._event: Any = event_pb2.Event
        self._summary: Any = summary_pb2.Summary
        self._tensor: Any = tensor_pb2.TensorProto
        self._metadata: Any = create_summary_metadata
        self._writer: Any = EventFileWriter(str(folder))

    def log(self, points: Sequence[StepValues]) -> None:
        """As scalars, with step and time."""
        for point in points:
            values = [self._summary.Value(tag=name, simple_value=value) for name, value in point.values.items()]
            self._add(values, point.step, point.time_ns / 1e9)
        self._writer.flush()

    def finish(self, outcome: Mapping[str, float | str], page: Path) -> None:
        """Text and page."""
        rows = "\n".join(f"| {name} | {_cell(value)} |" for name, value in outcome.items())
        tensor = self._tensor(dtype="DT_STRING", string_val=[f"| | |\n|---|---|\n{rows}".encode()])
        about = self._metadata(display_name="sonde", description="")
        value = self._summary.Value(tag="sonde/verdict/text_summary", metadata=about, tensor=tensor)
        self._add([value], 0, page.stat().st_mtime)
        self._writer.close()
        shutil.copyfile(page, self._folder / page.name)

    def _add(self, values: list[Any], step: int, seconds: float) -> None:
        self._writer.add_event(self._event(wall_time=seconds, step=step, summary=self._summary(value=values)))


def _cell(value: float | str) -> str:
    return value.replace("|", "\\|").replace("\n", " ") if isinstance(value, str) else f"{value:g}"
