"""The layout of everything Sonde writes while a program runs: one 48-byte record, rings that hold the newest ones.

`docs/reference/store.md` describes the same layout in words. The C core repeats these numbers; a test compares them.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FORMAT_VERSION = 1

# One record: start ns, duration ns (or float64 value), key, name id, args id, seq, parent seq, step, epoch, kind|flags,
# depth. Little-endian, no padding.
RECORD = struct.Struct("<QqqIIIIIHBB")
RECORD_FIELDS = (
    ("start", "<u8"),
    ("dur", "<i8"),
    ("key", "<i8"),
    ("name", "<u4"),
    ("args", "<u4"),
    ("seq", "<u4"),
    ("parent", "<u4"),
    ("step", "<u4"),
    ("epoch", "<u2"),
    ("kind", "u1"),
    ("depth", "u1"),
)
RECORD_SIZE = RECORD.size

# The low three bits of the kind byte.
KIND_MASK = 0x07
EMPTY = 0
SPAN = 1
COUNTER = 2
MARK = 3
VOID = 4  # cancelled: it took a slot, and then turned out to be nothing (the last, exhausted `next()` of an iterator)
BLOCK = 7  # in events.seg only: heads a run of records of one thread

# The high five bits of the kind byte.
OPEN = 0x08  # entered and not yet left
ERROR = 0x10  # left by an exception
CUT = 0x20  # its arguments were too long and were cut
AGAIN = 0x40  # completes a record with the same seq that had already left the ring
META = 0x80  # written by start/stop(metadata=True)

NO_KEY = -(2**63)
NO_STEP = 0xFFFFFFFF
NO_EPOCH = 0xFFFF
DEEPEST = 0xFF  # a depth that does not fit: the reader follows the parents instead

# A block head is a record of kind BLOCK: start = BLOCK_MAGIC, dur = index of its first record, key = number of records
# that follow, name = thread ordinal.
BLOCK_MAGIC = 0x4B4C4245444E4F53  # "SONDEBLK" in file order

# rings: one page of header, then rings of RING_BYTES each.
RINGS_MAGIC = b"SONDERNG"
HEADER_BYTES = 4096
RING_BYTES = 65536
RING_HEAD_BYTES = 64
RING_RECORDS = (RING_BYTES - RING_HEAD_BYTES) // RECORD_SIZE  # 1364
SPILL_RECORDS = RING_RECORDS // 2

# Fields of the header page: (name, offset, struct code).
HEADER_FIELDS = (
    ("magic", 0, "8s"),
    ("version", 8, "I"),
    ("record_size", 12, "I"),
    ("ring_bytes", 16, "I"),
    ("rings", 20, "I"),  # how many rings the file holds
    ("next_seq", 24, "Q"),  # the next sequence number; the first is 1
    ("seg_len", 32, "Q"),  # bytes of events.seg that count; what lies behind them is a failed write
    ("args_len", 40, "Q"),  # the same for args.bin
    ("step", 48, "I"),  # the current step and epoch, for live views
    ("epoch", 52, "I"),
    ("lost_space", 64, "Q"),  # records that could not be written: disk full, file-size limit, closed descriptor
    ("lost_cap", 72, "Q"),  # records not taken because the run neared its size cap
    ("lost_ring", 80, "Q"),  # records of threads that could get no ring
    ("lost_args", 88, "Q"),  # arguments that could not be written (their record was)
)

# Fields of a ring's head: (name, offset, struct code). Record i of the ring lies in slot i % RING_RECORDS.
RING_FIELDS = (
    ("head", 0, "Q"),  # records published so far
    ("spilled", 8, "Q"),  # records below this index are in events.seg (or lost); the rest is in the ring
    ("owner", 16, "I"),  # ordinal of the thread that writes it; 0 = nobody yet
    ("tid", 24, "Q"),  # that thread's native id
)

# args.bin: ARGS_MAGIC, then blobs of (uint32 length, UTF-8 JSON object), each starting at a multiple of 8.
# A record's args id is the blob's offset divided by 8; 0 = no arguments.
ARGS_MAGIC = b"SONDEARG"
ARGS_ALIGN = 8

# Importance of a record: when a run nears its size cap, DETAIL goes first, then NORMAL, and ESSENTIAL last.
ESSENTIAL = 0
NORMAL = 1
DETAIL = 2
THIN_DETAIL = 0.80  # share of the cap from which DETAIL is no longer taken
THIN_NORMAL = 0.95

# Distinct names a process may use, and characters of all of them, which keeps them below 10 MB; further ones are recorded as
# OVERFLOW_NAME, the name itself among the arguments.
MAX_NAMES = 16_384
MAX_NAMES_CHARS = 2**20
HIGHEST_NAME = 131_072  # a name's number above this is damage
MAX_NAME_CHARS = 512
OVERFLOW_NAME = "(too many names)"


def header_page(fields: Mapping[str, int | bytes]) -> bytes:
    """The first page of a rings file."""
    plain: dict[str, int | bytes] = {
        "magic": RINGS_MAGIC,
        "version": FORMAT_VERSION,
        "record_size": RECORD_SIZE,
        "ring_bytes": RING_BYTES,
        "step": NO_STEP,
        "epoch": NO_EPOCH,
    }
    return _packed(HEADER_FIELDS, HEADER_BYTES, plain | dict(fields))


def ring(fields: Mapping[str, int | bytes], slots: bytes) -> bytes:
    """A ring with this head, and these records in its slots."""
    return (_packed(RING_FIELDS, RING_HEAD_BYTES, fields) + slots).ljust(RING_BYTES, b"\0")


def _packed(places: Sequence[tuple[str, int, str]], size: int, values: Mapping[str, int | bytes]) -> bytes:
    page = bytearray(size)
    for name, offset, code in places:
        if name in values:
            struct.pack_into("<" + code, page, offset, values[name])
    return bytes(page)
