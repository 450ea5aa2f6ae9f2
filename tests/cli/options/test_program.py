"""Options of the commands that start a program: where a number may be left out."""

from __future__ import annotations

from typing import Any

import click
import pytest

from sonde.cli.options.program import Program, program_options


@pytest.mark.parametrize(
    ("words", "every", "program"),
    [
        (["--fingerprint", "train.py"], 100, ["train.py"]),
        (["--fingerprint", "7", "train.py", "--fingerprint", "x"], 7, ["train.py", "--fingerprint", "x"]),
        (["--name", "a", "--fingerprint", "--blackbox", "train.py"], 100, ["train.py"]),
        (["--fingerprint=3", "--", "bash", "x"], 3, ["bash", "x"]),
        (["--fingerprint", "--", "bash"], 100, ["bash"]),
        (["train.py", "--fingerprint"], None, ["train.py", "--fingerprint"]),
        (["-m", "package", "--fingerprint"], None, ["-m", "package", "--fingerprint"]),
        (["--fingerprint", "-m", "package"], 100, ["-m", "package"]),
    ],
)
@pytest.mark.parametrize("option", ["fingerprint", "learning"])
def test_the_interval_may_be_left_out(option: str, words: list[str], every: int | None, program: list[str]) -> None:
    """What belongs to the program stays as it is."""
    found: dict[str, Any] = {}

    @click.command(cls=Program, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
    @program_options
    @click.argument("words", nargs=-1, type=click.UNPROCESSED)
    def command(**given: Any) -> None:
        found.update(given)

    usual = {"fingerprint": 100, "learning": 50}[option]
    command.main([one.replace("fingerprint", option) for one in words], standalone_mode=False)
    assert found[option] == (usual if every == 100 else every)
    assert list(found["words"]) == [one.replace("fingerprint", option) for one in program]
