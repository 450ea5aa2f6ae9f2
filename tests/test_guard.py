"""The guard: our failures are swallowed, counted and told once; everything else passes."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from functools import partial

import pytest

from sonde import guard as module
from sonde.errors import FolderRefused
from sonde.guard import counts, guard, pass_on, reasons


@pytest.fixture
def place() -> str:
    """A place that no other test has used."""
    return f"testing {uuid.uuid4().hex}"


def test_failure_in_a_block_is_swallowed_and_counted(place: str) -> None:
    """A program goes on after a guarded block that failed."""
    for _ in range(3):
        with guard(place):
            raise KeyError("x")
    assert counts()[place] == 3
    assert reasons()[place] == "KeyError: 'x'"


def test_block_that_works_is_not_counted(place: str) -> None:
    """No failure, no count."""
    with guard(place):
        pass
    assert place not in counts()


def test_failing_function_returns_the_default(place: str) -> None:
    """A guarded function gives its own result, or the default."""

    @guard(place, default=-1)
    def divide(a: int, b: int) -> int:
        """Divide."""
        return a // b

    assert divide(6, 3) == 2
    assert divide(6, b=0) == -1
    assert counts()[place] == 1
    assert (divide.__name__, divide.__doc__) == ("divide", "Divide.")


def test_failing_function_without_a_default_returns_none(place: str) -> None:
    """The default is None unless one is given."""

    @guard(place)
    def fail() -> int:
        raise ValueError

    assert fail() is None


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_no_exception_passes(place: str, kind: type[BaseException]) -> None:
    """Ending the program is never swallowed, in either form."""

    @guard(place)
    def fail() -> None:
        raise kind

    with pytest.raises(kind):
        fail()
    with pytest.raises(kind), guard(place):
        raise kind
    assert place not in counts()


def test_a_place_is_told_once(place: str, caplog: pytest.LogCaptureFixture) -> None:
    """The log names what was done and why it failed, one time."""
    for _ in range(5):
        with guard(place):
            raise FolderRefused("it is a link")
    [record] = [record for record in caplog.records if place in record.getMessage()]
    assert (record.name, record.levelno) == ("sonde", logging.WARNING)
    assert f"Sonde failed while {place} (FolderRefused: it is a link)." in record.getMessage()
    assert not record.exc_info


def test_an_unexpected_failure_is_told_with_its_stack(place: str, caplog: pytest.LogCaptureFixture) -> None:
    """A mistake in Sonde itself can be found from the log."""
    with guard(place):
        raise ZeroDivisionError
    [record] = [record for record in caplog.records if place in record.getMessage()]
    assert record.exc_info


class UnprintableError(Exception):
    """An exception whose text cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_exception_without_text_is_swallowed_too(place: str) -> None:
    """Not even a hostile exception gets through."""
    with guard(place):
        raise UnprintableError
    assert counts()[place] == 1
    assert reasons()[place] == "UnprintableError"


def test_a_log_handler_that_raises_does_no_harm(place: str) -> None:
    """A broken handler of the user is not called through our failure."""

    class Broken(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            raise OSError("broken handler")

    handler = Broken()
    logging.getLogger("sonde").addHandler(handler)
    try:
        with guard(place):
            raise ValueError
    finally:
        logging.getLogger("sonde").removeHandler(handler)
    assert counts()[place] == 1


def test_a_log_handler_that_fails_in_sonde_again_does_no_harm(place: str) -> None:
    """A handler that itself uses Sonde, which fails again, does not go round in circles."""

    class Again(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            with guard(place):
                raise ValueError

    handler = Again()
    logging.getLogger("sonde").addHandler(handler)
    try:
        with guard(place):
            raise ValueError
    finally:
        logging.getLogger("sonde").removeHandler(handler)
    assert counts()[place] == 2


def test_a_full_stack_is_swallowed(place: str) -> None:
    """A recursion without end, also in the guard's own work, comes to an end."""

    @guard(place)
    def deeper() -> None:
        deeper()
        raise ValueError

    deeper()
    assert counts()[place] > 1


def test_threads_lose_no_count(place: str) -> None:
    """Failures of many threads at once are all counted."""

    def fail() -> None:
        for _ in range(200):
            with guard(place):
                raise ValueError

    threads = [threading.Thread(target=fail) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts()[place] == 1600


def test_child_of_a_fork_counts_for_itself_even_if_the_lock_was_held() -> None:
    """A fork while another thread counts leaves no lock behind, and the child begins with no counts."""
    code = """
import os, threading
from sonde import guard as module
held, done = threading.Event(), threading.Event()
def hold():
    with module._failures.lock:
        held.set(); done.wait(30)
with module.guard("parent work"): raise OSError("x")
thread = threading.Thread(target=hold); thread.start(); held.wait(30)
pid = os.fork()
if pid == 0:
    with module.guard("child work"): raise OSError("y")
    os._exit(0 if module.counts() == {"child work": 1} else 1)
status = os.waitpid(pid, 0)[1]
done.set(); thread.join()
raise SystemExit(os.waitstatus_to_exitcode(status))
"""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0


def test_places_are_bounded() -> None:
    """Even a place built from data cannot grow without bound."""
    code = f"""
import logging; logging.getLogger("sonde").setLevel(logging.CRITICAL)
from sonde import guard as module
for number in range(3 * {module.MAX_PLACES}):
    with module.guard(f"place {{number}}"): raise OSError
assert len(module.counts()) == {module.MAX_PLACES} + 1
assert module.counts()[module.OTHER_PLACES] == 2 * {module.MAX_PLACES}
"""
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)


def test_logging_is_not_loaded_before_a_failure() -> None:
    """Importing the guard costs no import of logging."""
    code = "import sys, sonde.guard; print('logging' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, env=dict(os.environ)).strip() == "False"


class Late(Exception):
    """What a program raises in its signal handler."""


def _interrupted() -> None:
    os.kill(os.getpid(), signal.SIGUSR1)
    for _ in range(100):
        pass


def _plain(_number: int, _frame: object) -> None:
    raise Late


def _deeper(*_given: object) -> None:
    _fail()


def _fail() -> None:
    raise Late


def _forgetful(number: int, frame: object) -> None:
    del number, frame
    raise Late


def _once(number: int, _frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise Late


def _configured(_seconds: float, _number: int, _frame: object) -> None:
    raise Late


class _Handler:
    def method(self, number: int, frame: object) -> None:
        del number, frame
        raise Late

    def __call__(self, number: int, frame: object) -> None:
        del number, frame
        raise Late


HANDLERS = [
    _plain,
    _deeper,
    _forgetful,
    _once,
    partial(_configured, 3.0),
    partial(_Handler()),
    _Handler().method,
    _Handler(),
    lambda *_: _fail(),
]


@pytest.fixture(params=HANDLERS, ids=[getattr(one, "__name__", type(one).__name__) for one in HANDLERS])
def handler(request: pytest.FixtureRequest) -> Iterator[None]:
    """One of the ways to write a handler that raises."""
    before = signal.signal(signal.SIGUSR1, request.param)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("handler")
def test_what_a_signal_handler_raises_in_our_code_passes(place: str) -> None:
    """The program gets its own exception, whatever its handler is."""
    with pytest.raises(Late), guard(place):
        _interrupted()
    assert place not in counts()


@pytest.mark.usefixtures("handler")
def test_what_a_signal_handler_raises_in_a_guarded_function_passes(place: str) -> None:
    """The same for the decorator."""
    with pytest.raises(Late):
        guard(place)(_interrupted)()
    assert place not in counts()


@pytest.mark.usefixtures("handler")
def test_what_a_signal_handler_raises_while_a_failure_is_noted_passes(place: str) -> None:
    """What is done after a failure of ours is our code, too."""
    with pytest.raises(Late), guard(place, then=_interrupted):
        raise KeyError("x")
    assert counts()[place] == 1


def test_what_a_library_raises_in_our_code_is_swallowed_beside_a_handler(place: str) -> None:
    """A function of the program that handles signals makes no failure of a library the program's."""
    before = signal.signal(signal.SIGUSR1, _plain)
    try:
        with guard(place):
            json.loads("{")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert counts()[place] == 1


def test_errors_that_we_expect_are_the_programs_if_its_handler_raised_them() -> None:
    """A TimeoutError is an OSError: `pass_on` tells the two apart."""

    def late(_number: int, _frame: object) -> None:
        raise TimeoutError

    def look() -> None:
        try:
            _interrupted()
        except OSError as error:
            pass_on(error)

    before = signal.signal(signal.SIGUSR1, late)
    try:
        with pytest.raises(TimeoutError):
            look()
    finally:
        signal.signal(signal.SIGUSR1, before)
    pass_on(OSError("the disk is full"))
