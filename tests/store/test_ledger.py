"""The file of a ledger: what was put in comes back, whatever happened in between, and damage costs only what it hit."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from sonde.store import ledger
from sonde.store.ledger import EntryMaker, LedgerWriter, pack_digest, pack_text
from sonde.store.reading.ledger import LedgerEntry, note_losses, read_entries

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
WORDS = {ledger.U16: "H", ledger.U32: "I", ledger.I64: "q"}


def writer(path: Path, *, mapped: bool = True, most: int | None = None) -> LedgerWriter:
    """A new ledger of which at most so many bytes are taken."""
    taken = [0]

    def take(count: int) -> bool:
        taken[0] += count
        return most is None or taken[0] <= most

    return LedgerWriter(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), take, at_once=mapped)


def read(path: Path) -> tuple[list[LedgerEntry], list[str]]:
    """All entries, and what was wrong."""
    notes: list[str] = []
    return list(read_entries(path, notes)), notes


def numbers(entry: LedgerEntry) -> list[int]:
    """The items of an entry."""
    if entry.code == ledger.RANGE:
        (first,) = ledger.FIRST.unpack(entry.content)
        return list(range(first, first + entry.count))
    return list(struct.unpack(f"<{entry.count}{WORDS[entry.code]}", entry.content))


def packed(key: int, *items: int) -> bytes:
    """The entry of a batch with these items."""
    entry = EntryMaker().batch(key, items)
    assert entry is not None
    return entry


# ── entries ──────────────────────────────────────────────────────────────────────────────────────────────────────────

whole = st.integers(-(2**63), 2**63 - 1)
keys = st.integers(0, 2**60 - 1)
batches = st.tuples(
    keys,
    st.lists(st.integers(0, 300) | st.integers(0, 2**33) | whole, max_size=40).map(tuple),
    st.none() | st.integers(0, 40),
    st.integers(0, 3),
)


@QUICK
@given(given_batches=st.lists(batches, max_size=40), mapped=st.booleans())
def test_what_is_put_in_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    given_batches: list[tuple[int, tuple[int, ...], int | None, int]],
    mapped: bool,
) -> None:
    """Numbers of any width, their order, worker, flags and key."""
    path = tmp_path_factory.mktemp("ledger") / "ledger.bin"
    book, packer = writer(path, mapped=mapped), EntryMaker()
    for key, items, worker, flags in given_batches:
        entry = packer.batch(key, items, worker, flags)
        assert entry is not None
        book.put(entry)
    book.close()
    found, notes = read(path)
    assert notes == []
    assert [(one.key, tuple(numbers(one)), one.worker, one.flags) for one in found] == given_batches


@pytest.mark.parametrize(
    ("items", "size"),
    [((), 8), ((5,), 8), (tuple(range(7, 100)), 8), ((3, 1, 2), 6), ((70_000, 1), 8), ((-1, 5), 16)],
)
def test_an_entry_is_as_narrow_as_its_numbers(items: tuple[int, ...], size: int) -> None:
    """Consecutive numbers take 8 bytes, however many they are."""
    assert len(packed(0, *items)) == ledger.ENTRY.size + size


@pytest.mark.parametrize("items", [("a", "b"), (1, "b"), (1.5, 2), (2**63, 1), ((1, 2), (3, 4)), (None,)])
def test_items_that_are_no_numbers_of_64_bits_are_not_packed(items: tuple[object, ...]) -> None:
    """They become text, which the probe does."""
    packer = EntryMaker()
    assert packer.batch(1, items) is None
    assert packer.batch(1, items) is None


def test_a_loader_with_wide_numbers_does_not_widen_others() -> None:
    """How wide its numbers are is known for each loader."""
    packer = EntryMaker()
    first = packer.batch(0, (2**40, 1))
    assert first is not None
    assert first[0] == ledger.I64
    other = packer.batch(1 << 44, (9, 1))
    assert other is not None
    assert other[0] == ledger.U16


def test_texts_and_digests_come_back(tmp_path: Path) -> None:
    """Keys that are no numbers, and what a batch held."""
    book = writer(tmp_path / "ledger.bin")
    book.put(pack_text(7, 2, b'{"keys":["a","b"]}', 3, ledger.ALONE))
    book.put(pack_digest(7, 2**64 - 1, whole=True), 0)
    (text, digest), notes = read(tmp_path / "ledger.bin")
    assert notes == []
    assert (text.key, text.count, text.keys(), text.worker, text.flags) == (7, 2, ["a", "b"], 3, ledger.ALONE)
    assert (digest.code, digest.key, digest.flags) == (ledger.DIGEST, 7, ledger.WHOLE)
    assert ledger.HASH.unpack(digest.content) == (2**64 - 1,)


@pytest.mark.parametrize("content", [b"{", b"[1]", b'{"keys":5}', b"\xff", b"[" * 20_000])
def test_damaged_texts_are_no_keys(content: bytes) -> None:
    """What cannot be read is not known."""
    assert LedgerEntry(ledger.TEXT, 0, None, 0, 3, ledger.SIZE.pack(len(content)) + content).keys() == []


# ── the file ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mapped", [True, False])
def test_many_batches_leave_the_buffer_and_stay_in_order(tmp_path: Path, mapped: bool) -> None:
    """A buffer that is full goes into the file, and nothing is there twice."""
    path = tmp_path / "ledger.bin"
    book = writer(path, mapped=mapped)
    for key in range(3000):
        book.put(packed(key, *range(key % 50, 50), *range(50)))
    book.close()
    found, notes = read(path)
    assert notes == []
    assert [one.key for one in found] == list(range(3000))
    assert path.stat().st_size > ledger.DATA + ledger.BUFFER_BYTES


def test_a_batch_that_is_larger_than_the_buffer_is_written_at_once(tmp_path: Path) -> None:
    """Also between small ones, and larger than what is read at once."""
    path = tmp_path / "ledger.bin"
    book = writer(path)
    large = tuple(range(0, 600_000, 2))
    for key, items in enumerate([(3, 1), large, (5, 2), large, (9, 7)]):
        book.put(packed(key, *items))
    book.close()
    found, notes = read(path)
    assert notes == []
    assert [numbers(one) for one in found] == [[3, 1], list(large), [5, 2], list(large), [9, 7]]


def test_what_is_in_the_buffer_can_be_read_while_it_grows(tmp_path: Path) -> None:
    """A reader needs no flush."""
    path = tmp_path / "ledger.bin"
    book = writer(path)
    for key in range(1500):
        book.put(packed(key, *range(100, 0, -1)))
        if key % 100 == 0:
            assert [one.key for one in read(path)[0]] == list(range(key + 1))


def test_a_kill_loses_nothing(tmp_path: Path) -> None:
    """The kernel has the pages."""
    program = (
        "import os, signal, sys\n"
        "from sonde.store.ledger import LedgerWriter, EntryMaker\n"
        "book = LedgerWriter(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600), lambda count: True)\n"
        "packer = EntryMaker()\n"
        "for key in range(2345):\n"
        "    book.put(packer.batch(key, (key, 5, 1)))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / "ledger.bin"
    ended = subprocess.run([sys.executable, "-c", program, str(path)], check=False, timeout=60)
    assert ended.returncode == -9
    found, notes = read(path)
    assert notes == []
    assert [numbers(one)[0] for one in found] == list(range(2345))


@pytest.mark.parametrize("point", ["length", "cleared"])
def test_a_kill_while_the_buffer_is_written_out_doubles_nothing(tmp_path: Path, point: str) -> None:
    """Between its moves the head tells that the buffer's content is in the file already."""
    path = tmp_path / "ledger.bin"
    book = writer(path)
    entry = packed(1, 9, 7)
    book.put(entry)
    with path.open("r+b") as file:
        file.seek(ledger.DATA)
        file.write(entry)
        file.seek(8 * ledger.LENGTH)
        file.write(struct.pack("<Q", len(entry)))
        if point == "cleared":
            file.seek(ledger.HEAD_BYTES)
            file.write(bytes(len(entry)))
    found, notes = read(path)
    assert notes == []
    assert [numbers(one) for one in found] == [[9, 7]]


def test_what_does_not_fit_the_cap_is_counted(tmp_path: Path) -> None:
    """Batches beyond the size of the run are dropped, and told."""
    path = tmp_path / "ledger.bin"
    book = writer(path, most=ledger.DATA)
    for key in range(2000):
        book.put(packed(key, *range(100, 0, -1)))
    book.close()
    found, notes = read(path)
    (note,) = notes
    assert f"lacks {2000 - len(found)} batches" in note
    assert "size cap" in note
    assert found[-1].key == 1999


LIMITED = """
import os, resource, signal, sys
from sonde.store.ledger import DATA, LedgerWriter, EntryMaker
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (DATA + int(sys.argv[2]), resource.RLIM_INFINITY))
book = LedgerWriter(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600), lambda count: True)
packer = EntryMaker()
for key in range(2000):
    if key == 1500:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    book.put(packer.batch(key, tuple(range(100, 0, -1))))
book.close()
"""


def test_no_room_on_the_disk_costs_batches_and_never_raises(tmp_path: Path) -> None:
    """They are counted; when there is room again, writing goes on."""
    path = tmp_path / "ledger.bin"
    subprocess.run([sys.executable, "-c", LIMITED, str(path), "1000"], check=True, timeout=60)
    found, notes = read(path)
    (note,) = notes
    assert f"lacks {2000 - len(found)} batches that could not be written" in note
    assert found[-1].key == 1999
    told: list[str] = []
    note_losses(path, told)
    assert told == notes


def test_no_room_for_the_buffer_itself(tmp_path: Path) -> None:
    """Nothing can be written: that is no failure of the program, and what comes later is there."""
    path = tmp_path / "ledger.bin"
    subprocess.run([sys.executable, "-c", LIMITED, str(path), "-60000"], check=True, timeout=60)
    assert [one.key for one in read(path)[0]][-1] == 1999


def test_a_program_that_closes_all_descriptors_finds_none_of_our_bytes(tmp_path: Path) -> None:
    """The file is opened again, and nothing is lost."""
    path, other = tmp_path / "ledger.bin", tmp_path / "other"
    program = (
        "import os, sys\n"
        "from sonde.store.ledger import LedgerWriter, EntryMaker\n"
        "book = LedgerWriter(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600), lambda count: True, sys.argv[1])\n"
        "os.closerange(3, 100)\n"
        "theirs = [os.open(sys.argv[2], os.O_RDWR | os.O_CREAT, 0o600) for _ in range(20)]\n"
        "for key in range(2000):\n"
        "    book.put(EntryMaker().batch(key, tuple(range(100, 0, -1))))\n"
        "book.close()\n"
        "del book\n"
        "for fd in theirs:\n"
        "    os.fstat(fd)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(path), str(other)], check=True, timeout=60)
    assert other.read_bytes() == b""
    found, notes = read(path)
    assert ([entry.key for entry in found], notes) == (list(range(2000)), [])


def test_a_forked_child_lets_go_of_the_file(tmp_path: Path) -> None:
    """What it puts after that goes nowhere."""
    path = tmp_path / "ledger.bin"
    book = writer(path)
    book.put(packed(1, 5, 2))
    pid = os.fork()
    if not pid:
        try:
            book.abandon()
            book.put(packed(2, 5, 2))
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    book.put(packed(3, 5, 2))
    assert [one.key for one in read(path)[0]] == [1, 3]


# ── hostile files ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_ledger_that_is_not_there_is_none(tmp_path: Path) -> None:
    """Most processes have none."""
    assert read(tmp_path / "ledger.bin") == ([], [])


@pytest.mark.parametrize("content", [b"", bytes(100), bytes(ledger.DATA)])
def test_a_file_that_was_just_made_is_an_empty_ledger(tmp_path: Path, content: bytes) -> None:
    """Its process was killed at that moment."""
    (tmp_path / "ledger.bin").write_bytes(content)
    assert read(tmp_path / "ledger.bin") == ([], [])


@pytest.mark.parametrize("content", [b"x", b"PAR1" * 100_000, bytes(ledger.DATA + 1)])
def test_another_file_in_its_place_is_told(tmp_path: Path, content: bytes) -> None:
    """It holds no batch."""
    (tmp_path / "ledger.bin").write_bytes(content)
    found, notes = read(tmp_path / "ledger.bin")
    assert found == []
    assert notes == ["ledger.bin is damaged: it has no ledger header"]


def test_a_link_or_a_folder_in_its_place_is_told(tmp_path: Path) -> None:
    """They are not followed."""
    (tmp_path / "there").write_bytes(b"x")
    (tmp_path / "ledger.bin").symlink_to(tmp_path / "there")
    assert read(tmp_path / "ledger.bin") == ([], ["ledger.bin is a symbolic link"])


def spilled(path: Path) -> list[int]:
    """A ledger with many batches in the file and some in the buffer; the keys of the latter."""
    book = writer(path)
    for key in range(1000):
        book.put(packed(key, *range(100, 0, -1)))
    book.close()
    behind = (path.stat().st_size - ledger.DATA) // len(packed(0, *range(100, 0, -1)))
    return list(range(behind, 1000))


def test_damage_in_the_file_costs_what_stands_behind_it_there(tmp_path: Path) -> None:
    """The good beginning is kept, and so is the buffer."""
    path = tmp_path / "ledger.bin"
    buffered = spilled(path)
    place = 10 * len(packed(0, *range(100, 0, -1)))
    with path.open("r+b") as file:
        file.seek(ledger.DATA + place)
        file.write(b"\xee")
    found, notes = read(path)
    assert [one.key for one in found] == [*range(10), *buffered]
    assert notes == [f"ledger.bin is damaged: the batches after its first {place} bytes are lost"]


def test_a_file_that_was_cut_keeps_its_beginning(tmp_path: Path) -> None:
    """What is missing is told."""
    path = tmp_path / "ledger.bin"
    spilled(path)
    os.truncate(path, ledger.DATA + 10 * len(packed(0, *range(100, 0, -1))) + 5)
    found, notes = read(path)
    assert [one.key for one in found][:10] == list(range(10))
    assert notes[0].startswith("ledger.bin is truncated")


@QUICK
@given(place=st.integers(0, 200_000), content=st.binary(min_size=1, max_size=64))
def test_any_damage_leaves_a_readable_rest(
    tmp_path_factory: pytest.TempPathFactory, place: int, content: bytes
) -> None:
    """No damage raises, or makes up more batches than the bytes could hold."""
    path = tmp_path_factory.mktemp("ledger") / "ledger.bin"
    spilled(path)
    with path.open("r+b") as file:
        file.seek(place)
        file.write(content)
    found, _ = read(path)
    assert len(found) <= path.stat().st_size // ledger.ENTRY.size


@QUICK
@given(body=st.binary(max_size=300), length=st.integers(0, 2**64 - 1), base=st.integers(0, 2**64 - 1))
def test_any_content_is_read_or_told(
    tmp_path_factory: pytest.TempPathFactory, body: bytes, length: int, base: int
) -> None:
    """Lengths in the file are not believed."""
    path = tmp_path_factory.mktemp("ledger") / "ledger.bin"
    head = ledger.MAGIC + struct.pack("<4Q", length, base, 0, 0)
    path.write_bytes((head.ljust(ledger.HEAD_BYTES, b"\0") + body).ljust(ledger.DATA, b"\0") + body)
    found, notes = read(path)
    if length > len(body):
        assert notes
    assert sum(len(one.content) for one in found) <= 2 * len(body) + ledger.BUFFER_BYTES


def test_recipes_of_earlier_versions_are_passed_by(tmp_path: Path) -> None:
    """The batches before and behind them are there."""
    book = writer(tmp_path / "ledger.bin")
    book.put(packed(0, 5, 3))
    book.put(ledger.ENTRY.pack(ledger.RECIPE, 0, -1, 44, 0) + bytes(44), 0)
    book.put(packed(1, 9, 2))
    book.close()
    found, notes = read(tmp_path / "ledger.bin")
    assert notes == []
    assert [numbers(one) for one in found if one.code != ledger.RECIPE] == [[5, 3], [9, 2]]


def test_a_ledger_that_is_truncated_goes_on(tmp_path: Path) -> None:
    """What was behind the buffer is counted as lost; what comes later is there."""
    path = tmp_path / "ledger.bin"
    book, packer = writer(path), EntryMaker()
    items = tuple(range(500, 0, -1))
    for key in range(200):
        book.put(packer.batch(key, items) or b"")
    os.truncate(path, 0)
    for key in range(200, 400):
        book.put(packer.batch(key, items) or b"")
    book.close()
    found, notes = read(path)
    assert [entry.key for entry in found] == list(range(400 - len(found), 400))
    assert len(found) > 200
    assert f"lacks {400 - len(found)} batches" in notes[0]


def test_a_ledger_that_is_truncated_before_its_first_spill_loses_nothing(tmp_path: Path) -> None:
    """The buffer is in memory too."""
    path = tmp_path / "ledger.bin"
    book, packer = writer(path), EntryMaker()
    book.put(packer.batch(1, (3, 1)) or b"")
    os.truncate(path, 0)
    book.put(packer.batch(2, (5, 4)) or b"")
    book.close()
    found, notes = read(path)
    assert ([numbers(entry) for entry in found], notes) == ([[3, 1], [5, 4]], [])
