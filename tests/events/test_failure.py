"""What is kept of the exception that ends a process."""

from __future__ import annotations

import json
from pathlib import Path

from sonde.events.failure import LONGEST, describe

PASSED_ON = """Caught KeyError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/x/site-packages/torch/utils/data/_utils/worker.py", line 349, in _worker_loop
    data = fetcher.fetch(index)
  File "/home/me/data.py", line 12, in __getitem__
    return self.items["image"]
KeyError: 'image'
"""


def raised(error: Exception) -> BaseException:
    """The same exception, as it was caught."""
    try:
        raise error  # noqa: TRY301
    except Exception as caught:  # noqa: BLE001
        return caught


def test_the_line_of_the_program_is_named_and_not_that_of_a_library() -> None:
    """`json` raised it, and this file called `json`."""
    try:
        json.loads("{")
    except ValueError as error:
        told = describe(error, message=True)
    assert told["exception"] == "JSONDecodeError"
    assert str(told["message"]).startswith("Expecting property name")
    assert Path(str(told["place"]).partition(":")[0]).name == Path(__file__).name


def test_without_values_there_is_no_message() -> None:
    """A message may hold what the program read."""
    told = describe(raised(ValueError("patient 4711")), message=False)
    assert "4711" not in json.dumps(told)
    assert told["place"] is not None


def test_what_a_loader_passes_on_is_told_as_its_worker_raised_it() -> None:
    """The last line of its text, and the program's own line in it."""
    told = describe(raised(RuntimeError(PASSED_ON)), message=True)
    assert told["place"] == "/home/me/data.py:12"
    assert "'image'" in str(told["message"])


def test_a_long_message_is_cut_and_none_is_none() -> None:
    """The first line of it, and no more than fits on a card."""
    assert len(str(describe(raised(ValueError("x" * 10_000)), message=True)["message"])) == LONGEST
    assert describe(raised(ValueError()), message=True)["message"] is None
