"""Secrets do not leave the command line."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from sonde.store.redact import MAX_ARGUMENTS, MAX_CHARACTERS, redact

SECRET = "hunter2hunter2"


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ([f"--token={SECRET}"], ["--token=***"]),
        (["--token", SECRET, "next"], ["--token", "***", "next"]),
        (["--api-key", SECRET], ["--api-key", "***"]),
        ([f"--password={SECRET} with {SECRET}"], ["--password=***"]),
        (["-p", SECRET, "next"], ["-p", "***", "next"]),
        (["-pS3cret"], ["-p***"]),
        (["-t", SECRET, "-k", SECRET], ["-t", "***", "-k", "***"]),
        ([f"KEY={SECRET}"], ["KEY=***"]),
        ([f"AWS_SECRET_ACCESS_KEY={SECRET}"], ["AWS_SECRET_ACCESS_KEY=***"]),
        ([f"model.apiKey={SECRET}"], ["model.apiKey=***"]),
        ([f"--env=HF_TOKEN={SECRET}"], ["--env=HF_TOKEN=***"]),
        ([f"s3://user:{SECRET}@host/bucket"], ["s3://user:***@host/bucket"]),
        ([f"https://{SECRET}@host/x"], ["https://***@host/x"]),
        ([f"https://host/x?token={SECRET}&page=2"], ["https://host/x?token=***&page=2"]),
        ([f"hf_{SECRET}"], ["hf_***"]),
        ([f"sk-{SECRET}"], ["sk-***"]),
        ([f"ghp_{SECRET}"], ["ghp_***"]),
        ([f"Authorization: Bearer {SECRET}"], ["Authorization: Bearer ***"]),
        ([f'{{"password": "{SECRET} x", "lr": 1}}'], ['{"password": "***", "lr": 1}']),
        ([f"os.environ['HF_TOKEN'] = '{SECRET}'; run()"], ["os.environ['HF_TOKEN'] = '***'; run()"]),
    ],
)
def test_a_secret_is_hidden_and_its_name_stays(command: list[str], shown: list[str]) -> None:
    """Every common form of a secret is replaced, and only that."""
    assert redact(command) == shown


@pytest.mark.parametrize(
    "command",
    [
        ["python", "train.py", "--lr=0.1", "-v"],
        ["--tokenizer=bert", "--tokenizer", "bert"],
        ["--max-tokens", "4096", "--num_tokens=12"],
        ["sk-learn-model", "risk-assessment-of-everything"],
        ["--author=me", "--monkey", "x"],
        ["https://host/path", "a@b.org"],
        ["--auth", "--verbose"],
        ["-path", "x", "-t", "4", "-k", "fold", "-s", "data/set.2024"],
    ],
)
def test_what_is_no_secret_stays(command: list[str]) -> None:
    """Words that only look like secrets are left alone."""
    assert redact(command) == command


def test_long_commands_are_cut() -> None:
    """Neither a long argument nor many arguments make run.json large."""
    shown = redact(["x" * 100_000, *["y"] * 5000])
    assert len(shown) == MAX_ARGUMENTS + 1
    assert len(shown[0]) == max(map(len, shown)) == MAX_CHARACTERS + 3


@given(st.lists(st.text(max_size=200), max_size=8))
def test_any_command_can_be_redacted(command: list[str]) -> None:
    """Redaction never fails, and keeps the number of arguments."""
    assert len(redact(command)) == len(command)


@given(
    st.text(alphabet="abcXYZ0189", min_size=8, max_size=40), st.sampled_from(["--token", "--db-password", "api_key"])
)
def test_a_value_behind_a_secret_name_never_shows(value: str, name: str) -> None:
    """Whatever the value is, it is hidden behind such a name."""
    assert value not in " ".join(redact([f"{name}={value}"]))
