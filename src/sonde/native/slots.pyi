"""The slots of a recording in one pass; the C extension may be absent, then NumPy does it. All memory is contiguous.

`slots` are records of 48 bytes, `what` is BAD, PLAIN or SPECIAL as in `segment`, places are int64.
"""

def cut(
    slots: object, kinds: object, seqs: object, what: object, threads: object, thread: int, left: int, /
) -> tuple[int, int, int, int]:
    """Fill kind bytes, numbers, what each slot is, and the thread of each; `thread` and `left`: of the block that reaches into them.

    (thread and left of the block at the end, bad slots, whether all are of one thread).
    """

def mark(seqs: object, what: object, seen: object, twice: object, above: object, /) -> tuple[int, int, int, int]:
    """Mark the numbers of plain records in the table `seen`; those that were marked go into `twice`, those beyond it into `above`.

    (plain records, the highest number, how many in `twice`, how many in `above`).
    """

def sort(
    slots: object, kinds: object, what: object, own: object, table: object, piles: object, codes: object, places: object,
    other: int, /,
) -> tuple[int, ...]:  # fmt: skip
    """Fill the code of each record (by its name from `table`; `other` where there is none), and its place into the row of its pile.

    `piles` is by own thread or not, code, and kind with its open bit. How many each pile got.
    """

def gather(slots: object, places: object, out: object, at: int, width: int, /) -> None:
    """Fill `out` with the field at byte `at`, 4 or 8 bytes wide, of the slots at some places."""
