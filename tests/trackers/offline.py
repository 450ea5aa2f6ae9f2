"""Reads what wandb keeps offline: records of protobuf in the blocks of a LevelDB log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK, HEAD = 32_768, 7


def records(folder: Path) -> Iterator[tuple[str, Any]]:
    """Each record of the only offline run in a folder: its kind, and what it says."""
    from wandb.proto import wandb_internal_pb2 as protos

    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    for content in _pieces(file.read_bytes()):
        record = protos.Record.FromString(content)
        kind = record.WhichOneof("record_type")
        yield kind, getattr(record, kind)


def _pieces(content: bytes) -> Iterator[bytes]:
    place, found = HEAD, b""
    while place + HEAD <= len(content):
        left = BLOCK - place % BLOCK
        if left < HEAD:
            place += left
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        found += content[place + HEAD : place + HEAD + length]
        place += HEAD + length
        if kind in (1, 4):  # whole, or the last piece
            yield found
            found = b""


def values(items: Any) -> dict[str, Any]:
    """Items of a history or summary as a dict."""
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
