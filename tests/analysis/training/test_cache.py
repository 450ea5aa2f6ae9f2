"""Steps that are kept beside sealed tables: the same numbers as without them, and never those of other tables."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings, strategies as st

from sonde.analysis.records.builder import TableBuilder
from sonde.analysis.records.columns import LEAST
from sonde.analysis.run import Run, open_run
from sonde.analysis.seal import seal
from sonde.analysis.tables import steps
from sonde.analysis.training import cache as module, reader
from sonde.analysis.training.cache import describe, read_cached_steps, text_of
from sonde.errors import RunUnreadable
from sonde.testing import BuiltProcess, BuiltRecord, build_run, training_processes

MADE = ("steps", "phases", "memory")
FILES = ("steps.json", "steps.parquet")


def losses(step: int) -> float:
    """Some of them are no numbers."""
    return {3: math.nan, 4: math.inf, 5: -0.0}.get(step, 1 / (step + 1))


def training(ranks: int = 2, **more: Any) -> list[BuiltProcess]:
    """Ranks with workers, evaluation, losses and memory."""
    return training_processes(ranks=ranks, steps=30, evaluate_every=10, loss=losses, **more)


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """A training that is sealed."""
    folder = build_run(tmp_path / "run", training())
    seal(folder)
    return folder


def told(run: Run) -> dict[str, list[str]]:
    """All rows of the tables that are made of steps, in no order."""
    return {table: sorted(map(repr, run.table(table).fetchall())) for table in MADE}


def answers(*folders: Path) -> dict[str, list[str]]:
    """The same of run folders."""
    with open_run(folders) as run:
        return told(run)


def made_again(folder: Path) -> dict[str, list[str]]:
    """What the sealed events tell if nothing is kept beside them."""
    for name in FILES:
        (folder / name).unlink(missing_ok=True)
    return answers(folder)


@pytest.mark.parametrize("killed", [False, True])
def test_kept_steps_are_those_of_the_records(tmp_path: Path, *, killed: bool) -> None:
    """Raw, sealed, and sealed without what was kept: every value of every row."""
    folder = build_run(tmp_path / "run", training(killed=killed))
    raw = answers(folder)
    seal(folder, force=True)
    assert read_cached_steps(folder) is not None
    assert answers(folder) == raw
    assert made_again(folder) == raw
    assert len(raw["steps"]) >= 58


def test_kept_steps_are_read_without_the_events(sealed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is made again; the names of the events are known too."""
    monkeypatch.setattr(reader, "_asked", lambda *_: pytest.fail("events were read"))
    with open_run(sealed) as run:
        assert len(told(run)["steps"]) == 60
        assert run.database.source.name_counts


def test_they_are_private(sealed: Path) -> None:
    """Mode 0600, like all others."""
    assert {(sealed / name).stat().st_mode & 0o777 for name in FILES} == {0o600}


def rewrite(path: Path, query: str) -> None:
    """Replace a table by what a query gives of it."""
    other = path.with_suffix(".other")
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({query.format(path)}) TO '{other}' (FORMAT parquet)")
    other.replace(path)


def test_changed_events_count_and_not_what_was_kept_of_others(sealed: Path) -> None:
    """Somebody took the last steps out of the sealed table."""
    before = answers(sealed)
    rewrite(sealed / "events.parquet", "SELECT * FROM '{}' WHERE step < 20 OR step IS NULL")
    assert read_cached_steps(sealed) is None
    found = answers(sealed)
    assert found != before
    assert found == made_again(sealed)


def test_changed_processes_count_and_not_what_was_kept_of_others(sealed: Path) -> None:
    """Somebody took a process out of the list."""
    rewrite(sealed / "processes.parquet", "SELECT * FROM '{}' WHERE rank = 0")
    assert read_cached_steps(sealed) is None
    assert len(answers(sealed)["steps"]) == 30


def test_a_single_other_byte_in_the_events_is_seen(sealed: Path) -> None:
    """The size stays, and the end of the file."""
    content = bytearray((sealed / "events.parquet").read_bytes())
    content[len(content) // 2] ^= 1
    (sealed / "events.parquet").write_bytes(content)
    assert read_cached_steps(sealed) is None


@pytest.mark.parametrize("version", [module.VERSION - 1, module.VERSION + 1])
def test_another_version_is_made_again(tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older or newer: its numbers may mean something else. Sealing again writes it as it is written now."""
    folder = build_run(tmp_path / "run", training())
    before = answers(folder)
    monkeypatch.setattr(module, "VERSION", version)
    seal(folder)
    assert read_cached_steps(folder) is not None
    monkeypatch.undo()
    assert read_cached_steps(folder) is None
    assert answers(folder) == before
    seal(folder)
    assert read_cached_steps(folder) is not None
    assert answers(folder) == before


def test_the_version_goes_with_what_steps_come_out_of_the_same_events(tmp_path: Path) -> None:
    """Other numbers need another version: raise kept.VERSION, and put the digest of the new ones here."""
    folder = build_run(tmp_path / "run", training(workers=1, micro_batches=2, epoch_steps=15, killed=True))
    digest = hashlib.sha256(json.dumps(answers(folder)).encode()).hexdigest()
    assert (module.VERSION, digest[:16]) == (5, "9032595151e0e126")


def test_a_run_that_cannot_be_kept_has_nothing_of_others_left(sealed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was kept of older tables goes, even if nothing comes in its place."""
    monkeypatch.setattr(module, "MOST_NAMES", 1)
    (sealed / "steps.json").write_text("{}")
    seal(sealed)
    assert not [path for path in sealed.iterdir() if "steps" in path.name]


def test_other_columns_are_made_again(sealed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Sonde whose steps have one more."""
    monkeypatch.setattr(steps, "COLUMNS", dict(reversed(steps.COLUMNS.items())))
    kept, made = answers(sealed), made_again(sealed)
    assert kept == made


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def turned(content: bytes) -> bytes:
    place = len(content) // 2
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def of(text: bytes) -> Callable[[bytes], bytes]:
    return lambda _: text


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *((name, damage) for name in FILES for damage in (cut, turned, None)),
        *(("steps.json", of(text)) for text in (b"[]", b'{"version": 1}', b"[" * 100_000, b"\xff")),
    ],
)
def test_damaged_files_are_made_again(sealed: Path, name: str, damage: Callable[[bytes], bytes] | None) -> None:
    """Cut, turned over, missing, something else: the same numbers, and no error."""
    before = answers(sealed)
    content = (sealed / name).read_bytes()
    (sealed / name).unlink()
    if damage is not None:
        (sealed / name).write_bytes(damage(content))
    assert read_cached_steps(sealed) is None
    assert answers(sealed) == before
    seal(sealed)
    assert read_cached_steps(sealed) is not None
    assert answers(sealed) == before


@pytest.mark.parametrize("name", FILES)
def test_links_are_not_followed(sealed: Path, name: str) -> None:
    """What a link leads to is no part of the run."""
    (sealed / name).rename(sealed.parent / name)
    (sealed / name).symlink_to(sealed.parent / name)
    assert read_cached_steps(sealed) is None
    assert len(answers(sealed)["steps"]) == 60


def test_a_table_that_goes_while_the_run_is_open_is_made_again(sealed: Path) -> None:
    """Between the look at it and the question for steps."""
    before = answers(sealed)
    with open_run(sealed) as run:
        assert run.database.source.name_counts
        (sealed / "steps.parquet").unlink()
        assert told(run) == before


def test_a_process_that_joined_later_stands_beside_kept_ones(tmp_path: Path) -> None:
    """Its steps are made of its records, whatever number it gets; sealing again keeps all."""
    both = training(ranks=3)
    folder = build_run(tmp_path / "run", both)
    whole = answers(folder)
    late = folder / "testhost-1000-0"
    aside = late.rename(tmp_path / late.name)
    seal(folder)
    assert len(answers(folder)["steps"]) == 60
    aside.rename(late)
    assert answers(folder) == whole
    seal(folder)
    assert read_cached_steps(folder) is not None
    assert answers(folder) == whole


def test_folders_with_the_same_names_of_processes_are_kept_apart(tmp_path: Path) -> None:
    """Two hosts that could not agree on a folder, one of them sealed."""
    folders = [build_run(tmp_path / name, training()) for name in "ab"]
    before = answers(*folders)
    seal(folders[0])
    assert answers(*folders) == before
    seal(folders[1])
    assert answers(*folders) == before


def test_a_run_without_steps_keeps_that(tmp_path: Path) -> None:
    """An empty table, and the names of its events."""
    folder = build_run(tmp_path / "run", [BuiltProcess([BuiltRecord(name="x", dur=5)], pid=7)])
    seal(folder)
    assert read_cached_steps(folder) is not None
    assert answers(folder)["steps"] == []
    with open_run(folder) as run:
        assert [one.name for named in run.database.source.name_counts.values() for one in named] == ["x"]


@pytest.mark.parametrize("reason", ["names", "disk"])
def test_a_run_is_sealed_though_its_steps_cannot_be_kept(
    tmp_path: Path, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many names, or a disk that does not give back what was written: nothing is left of the attempt."""
    if reason == "names":
        monkeypatch.setattr(module, "MOST_NAMES", 1)
    else:
        monkeypatch.setattr("sonde.analysis.seal.text_of", lambda *_: failing())
    folder = build_run(tmp_path / "run", training())
    before = answers(folder)
    seal(folder)
    assert not [path for path in folder.iterdir() if "steps" in path.name]
    assert answers(folder) == before


def failing() -> str:
    raise RunUnreadable("no")


# ── any numbers ──────────────────────────────────────────────────────────────────────────────────────────────────────

COLUMNS = {"number": "BIGINT", "a": "BIGINT", "b": "BIGINT", "whole": "BOOLEAN", "flag": "BOOLEAN", "loss": "DOUBLE"}
NUMBERS = st.one_of(st.none(), st.integers(-3, 300), st.integers(-(2**62), 2**62), st.integers(LEAST + 1, 2**63 - 1))
ROWS = st.lists(
    st.tuples(st.integers(0, 3), NUMBERS, st.one_of(st.none(), st.just(7)), st.booleans(), st.floats(allow_nan=False)),
    max_size=12,
)


def kept_and_read(folder: Path, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]] | None:
    """Keep rows, and read them again; None: they cannot be kept."""
    for name in ("events.parquet", "processes.parquet"):
        (folder / name).write_bytes(b"any")
    numbers = {f"p{number}": number for number in range(4)}
    with duckdb.connect() as connection:
        types = ", ".join(f"{name} {type}" for name, type in COLUMNS.items())
        connection.execute(f"CREATE TABLE given (process VARCHAR, {types})")
        for row in rows:
            connection.execute("INSERT INTO given VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        people = "range AS number, 'h' AS host, range AS rank, 1 AS pid, 'p' || range AS process FROM range(4)"
        connection.execute(f"CREATE TABLE process_numbers AS SELECT {people}")
        described = describe(connection, "given", COLUMNS, {name: [] for name in numbers})
        if described is None:
            return None
        query, about = described
        connection.execute(f"COPY ({query} ORDER BY number) TO '{folder / 'steps.parquet'}' (FORMAT parquet)")
        (folder / "steps.json").write_text(text_of(about, folder, folder / "steps.parquet"))
        kept = read_cached_steps(folder)
        assert kept is not None
        found = TableBuilder("found", COLUMNS, {"a", "b"})
        for part in kept.parts(connection, COLUMNS, numbers):
            found.take(part)
        for end in kept.ends(COLUMNS, numbers):
            found.add(end)
        found.register(connection)
        return connection.execute(f"SELECT process, {', '.join(COLUMNS)} FROM found").fetchall()


@settings(max_examples=60, deadline=None)
@given(ROWS, st.sampled_from([1, 3, 1000]))
def test_any_numbers_come_back(tmp_path_factory: pytest.TempPathFactory, rows: list[Any], least: int) -> None:
    """Whatever they are, with gaps or without, and however they are cut into parts."""
    whole = [(f"p{number}", number, a, b, True, flag, loss) for number, a, b, flag, loss in rows]
    numbers = {row[1] for row in whole}
    ends = [(f"p{number}", number, None, number, False, False, None) for number in numbers]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LEAST_PART", least)
        found = kept_and_read(tmp_path_factory.mktemp("kept"), whole + ends)
    known = [row[2] for row in whole if row[2] is not None]
    if found is None:
        assert max(known) - min(known) >= 2**63 - 2
    else:
        assert sorted(map(repr, found)) == sorted(map(repr, whole + ends))


@pytest.mark.parametrize(
    ("where", "what"),
    [("known", {"step": "1; DROP VIEW processes; --"}), ("least", {"1 FROM processes; --": [0, False]}), ("least", {"step": ["1", 2, 3]})],
)  # fmt: skip
def test_what_stands_in_the_file_is_never_run_as_sql(sealed: Path, where: str, what: dict[str, Any]) -> None:
    """A file that somebody made up, with right digests: it is not used."""
    found = json.loads((sealed / "steps.json").read_text())
    found[where] |= what
    found.pop("digest")
    found["digest"] = module._digest_of(found)
    (sealed / "steps.json").write_text(json.dumps(found))
    assert read_cached_steps(sealed) is None
    assert len(answers(sealed)["steps"]) == 60
