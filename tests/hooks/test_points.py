"""Points: one patch per function, any number of subscribers, and nothing left behind."""

from __future__ import annotations

import gc
import importlib
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sonde import guard
from sonde.hooks import finder, patches
from sonde.hooks.points import Point, quiet


class Teller:
    """Writes down what it is told."""

    def __init__(self, log: list[Any] | None = None, name: str = "") -> None:
        self.log: list[Any] = [] if log is None else log
        self.name = name

    def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        """A call begins."""
        self.log.append((self.name, "before", args, kwargs))
        return len(self.log)

    def after(self, token: object, result: Any, error: BaseException | None) -> None:
        """A call has ended."""
        self.log.append((self.name, "after", result, type(error).__name__ if error else None))


class Failing:
    """Fails in one of its methods."""

    def __init__(self, where: str, error: BaseException) -> None:
        self.where = where
        self.error = error
        self.ended = 0

    def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A call begins."""
        if self.where == "before":
            raise self.error

    def after(self, token: object, result: Any, error: BaseException | None) -> None:
        """A call has ended."""
        self.ended += 1
        if self.where == "after":
            raise self.error


def double(value: int, *, plus: int = 0) -> int:
    """What the library does."""
    if value < 0:
        raise ValueError("negative")
    return 2 * value + plus


@pytest.fixture
def library() -> Iterator[SimpleNamespace]:
    """A library with one function; all patches are gone at the end."""
    yield SimpleNamespace(double=double)
    assert patches.describe() == []


@pytest.fixture
def point(library: SimpleNamespace) -> Point:
    """The point of that function."""
    return Point("library.double", "a test").install(library, "double")


def failures() -> int:
    """How often a subscriber of the point has failed."""
    return guard.counts().get("following library.double", 0)


def test_a_subscriber_is_told_of_arguments_and_result(library: SimpleNamespace, point: Point) -> None:
    """The caller gets the result of the original."""
    teller = Teller()
    leave = point.subscribe(teller)
    assert library.double(3, plus=1) == 7
    leave()
    assert teller.log == [("", "before", (3,), {"plus": 1}), ("", "after", 7, None)]


def test_a_subscriber_is_told_of_the_exception_and_the_caller_gets_it(library: SimpleNamespace, point: Point) -> None:
    """The same object, raised where the original raised it."""
    teller = Teller()
    leave = point.subscribe(teller)
    with pytest.raises(ValueError, match="negative"):
        library.double(-1)
    leave()
    assert teller.log[-1] == ("", "after", None, "ValueError")


def test_the_function_is_patched_once_for_all_subscribers(library: SimpleNamespace, point: Point) -> None:
    """The second subscriber changes nothing in the library."""
    leave_first = point.subscribe(Teller())
    patched = library.double
    leave_second = point.subscribe(Teller())
    assert library.double is patched
    assert len(patches.describe()) == 1
    leave_first()
    assert library.double is patched
    leave_second()
    assert library.double is double


def test_who_began_last_ends_first(library: SimpleNamespace, point: Point) -> None:
    """So that each can put back what it found."""
    log: list[Any] = []
    leave = [point.subscribe(Teller(log, name)) for name in "ab"]
    library.double(1)
    for each in leave:
        each()
    assert [(entry[0], entry[1]) for entry in log] == [
        ("a", "before"), ("b", "before"), ("b", "after"), ("a", "after"),
    ]  # fmt: skip


def test_leaving_twice_is_harmless(library: SimpleNamespace, point: Point) -> None:
    """It does not take the patch away from the others."""
    first, second = Teller(), Teller()
    leave, leave_second = point.subscribe(first), point.subscribe(second)
    leave()
    leave()
    library.double(1)
    leave_second()
    assert (len(first.log), len(second.log)) == (0, 2)


def test_the_same_subscriber_twice_is_told_twice(library: SimpleNamespace, point: Point) -> None:
    """Each subscription has its own end."""
    teller = Teller()
    leave, leave_second = point.subscribe(teller), point.subscribe(teller)
    library.double(1)
    leave()
    library.double(1)
    leave_second()
    assert len(teller.log) == 4 + 2


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_subscriber_that_fails_is_counted_and_changes_nothing(
    where: str, library: SimpleNamespace, point: Point
) -> None:
    """Result, exception and the other subscribers stay as they are."""
    teller = Teller()
    leave = [point.subscribe(Failing(where, RuntimeError("ours"))), point.subscribe(teller)]
    before = failures()
    assert library.double(2) == 4
    with pytest.raises(ValueError, match="negative"):
        library.double(-1)
    for each in leave:
        each()
    assert failures() == before + 2
    assert len(teller.log) == 4


def test_after_a_failed_before_there_is_no_after(library: SimpleNamespace, point: Point) -> None:
    """There would be no token."""
    failing = Failing("before", RuntimeError("ours"))
    leave = point.subscribe(failing)
    library.double(2)
    leave()
    assert failing.ended == 0


@pytest.mark.parametrize("where", ["before", "after"])
def test_an_interrupt_inside_a_subscriber_passes_and_nothing_stays(
    where: str, library: SimpleNamespace, point: Point
) -> None:
    """It is the user's key press, whoever runs at that moment."""
    leave = point.subscribe(Failing(where, KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        library.double(2)
    leave()
    teller = Teller()
    leave = point.subscribe(teller)
    library.double(2)
    leave()
    assert len(teller.log) == 2
    assert library.double is double


def test_what_a_subscriber_calls_itself_is_not_told(library: SimpleNamespace, point: Point) -> None:
    """Else it would be told of its own work, without end."""

    class Calling(Teller):
        def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
            library.double(1)
            return super().before(args, kwargs)

    teller = Calling()
    leave = point.subscribe(teller)
    library.double(5)
    leave()
    assert [entry[2] for entry in teller.log] == [(5,), 10]


def test_quiet_is_silence_in_this_thread_only(library: SimpleNamespace, point: Point) -> None:
    """Other threads go on telling; after the block this one does too."""
    teller = Teller()
    leave = point.subscribe(teller)
    with quiet():
        library.double(1)
        with quiet():
            pass
        library.double(1)
        other = threading.Thread(target=library.double, args=(2,))
        other.start()
        other.join()
    library.double(3)
    leave()
    assert [entry[2] for entry in teller.log if entry[1] == "before"] == [(2,), (3,)]


def test_recursion_is_told_call_by_call(library: SimpleNamespace) -> None:
    """A plain point has no idea of outermost calls."""

    def down(value: int) -> int:
        return 0 if value == 0 else 1 + int(library.down(value - 1))

    library.down = down
    teller = Teller()
    leave = Point("library.down", "a test").install(library, "down").subscribe(teller)
    assert library.down(3) == 3
    leave()
    assert [entry[1] for entry in teller.log] == ["before"] * 4 + ["after"] * 4


def test_a_subscriber_that_leaves_during_a_call_is_told_its_end(library: SimpleNamespace, point: Point) -> None:
    """What has begun is completed."""

    class Leaving(Teller):
        def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
            leave()
            return super().before(args, kwargs)

    teller = Leaving()
    leave = point.subscribe(teller)
    assert library.double(1) == 2
    assert library.double is double
    assert [entry[1] for entry in teller.log] == ["before", "after"]


def test_an_exception_that_passed_is_held_by_nobody(library: SimpleNamespace, point: Point) -> None:
    """It holds all its frames and their values: on a device, memory."""
    raised: list[Callable[[], Any]] = []

    class Own(Exception):
        pass

    def fail() -> None:
        raise Own

    library.fail = fail
    leave = Point("library.fail", "a test").install(library, "fail").subscribe(Teller())
    gc.collect()
    gc.disable()
    try:
        try:
            library.fail()
        except Own as error:
            raised.append(weakref.ref(error))
        assert raised[0]() is None
    finally:
        gc.enable()
        leave()


def test_the_replacement_looks_like_the_original(library: SimpleNamespace, point: Point) -> None:
    """Name, text and signature."""
    import inspect

    leave = point.subscribe(Teller())
    assert (library.double.__name__, library.double.__doc__) == (double.__name__, double.__doc__)
    assert inspect.signature(library.double) == inspect.signature(double)
    leave()


# ── replacing ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_replacement_decides_what_the_program_gets(library: SimpleNamespace, point: Point) -> None:
    """Subscribers see the same."""
    teller = Teller()
    leave = [point.subscribe(teller), point.replace(lambda original, value: -original(value))]
    assert library.double(2) == -4
    leave[1]()
    assert library.double(2) == 4
    leave[0]()
    assert [entry[2] for entry in teller.log if entry[1] == "after"] == [-4, 4]


def test_of_several_replacements_the_newest_is_called(library: SimpleNamespace, point: Point) -> None:
    """The one before takes over again when it leaves."""
    outer = point.replace(lambda original, value: "outer")
    inner = point.replace(lambda original, value: "inner")
    assert library.double(1) == "inner"
    inner()
    assert library.double(1) == "outer"
    outer()
    assert library.double is double


# ── others who patch the same function ───────────────────────────────────────────────────────────────────────────────


def test_a_patch_of_somebody_else_over_ours_stays_and_works(library: SimpleNamespace, point: Point) -> None:
    """Ours below it passes everything through, and tells nobody any more."""
    teller = Teller()
    leave = point.subscribe(teller)
    ours = library.double
    library.double = lambda value: ours(value) + 100
    leave()
    assert library.double(1) == 102
    assert teller.log == []


def test_after_that_a_new_subscriber_is_told_once_per_call(library: SimpleNamespace, point: Point) -> None:
    """The old replacement is still in the chain, but dead."""
    leave = point.subscribe(Teller())
    ours = library.double
    library.double = theirs = lambda value: ours(value) + 100
    leave()
    teller = Teller()
    leave = point.subscribe(teller)
    assert library.double(1) == 102
    leave()
    assert len(teller.log) == 2
    assert library.double is theirs


def test_when_they_have_left_too_the_original_comes_back(library: SimpleNamespace, point: Point) -> None:
    """The next subscription clears away what could not be restored before."""
    leave = point.subscribe(Teller())
    ours = library.double
    library.double = lambda value: ours(value) + 100
    leave()
    library.double = ours  # they undo their patch
    leave = point.subscribe(Teller())
    leave()
    assert library.double is double


# ── where a function stands ──────────────────────────────────────────────────────────────────────────────────────────


class Above:
    """Has methods of each kind."""

    def plain(self) -> str:
        """A method."""
        return f"plain of {type(self).__name__}"

    @classmethod
    def of_class(cls) -> str:
        """A class method."""
        return f"class {cls.__name__}"

    @staticmethod
    def static() -> str:
        """A static method."""
        return "static"


class Below(Above):
    """Inherits them."""


@pytest.mark.parametrize("owner", [Above, Below])
@pytest.mark.parametrize("name", ["plain", "of_class", "static"])
def test_methods_of_each_kind_own_and_inherited(owner: type[Above], name: str) -> None:
    """They work as before on the class and on instances, and leave the class as it was."""
    spaces = dict(vars(Above)), dict(vars(Below))
    expected = getattr(Below(), name)()
    teller = Teller()
    leave = Point("method", "a test").install(owner, name).subscribe(teller)
    assert getattr(Below(), name)() == expected
    assert getattr(owner(), name)() == expected.replace("Below", owner.__name__)
    leave()
    assert len(teller.log) == 4
    assert (dict(vars(Above)), dict(vars(Below))) == spaces


def test_a_place_that_is_not_there_is_counted_and_hurts_nobody() -> None:
    """A library that has changed costs a blind spot, not a program."""
    before = guard.counts().get("patching library.gone", 0)
    leave = Point("library.gone", "a test").install(SimpleNamespace(), "gone").subscribe(Teller())
    leave()
    assert guard.counts()["patching library.gone"] == before + 1


def test_a_place_that_is_named_later_is_patched_at_once(library: SimpleNamespace) -> None:
    """Subscribers may come first."""
    point = Point("library.double", "a test")
    teller = Teller()
    leave = point.subscribe(teller)
    point.install(library, "double")
    library.double(1)
    leave()
    assert len(teller.log) == 2
    assert library.double is double


# ── libraries that are imported later ────────────────────────────────────────────────────────────────────────────────

NAME = "sonde_test_points"


@pytest.fixture
def late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Point]:
    """A point of a library that nobody has imported yet."""
    (tmp_path / f"{NAME}.py").write_text("def work(): return 5\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Point("late", "a test", library=NAME, find=lambda module: [(module, "work")])
    sys.modules.pop(NAME, None)
    assert patches.describe() == []


def test_a_library_is_patched_when_it_is_imported(late: Point) -> None:
    """Subscribing does not import it."""
    teller = Teller()
    leave = late.subscribe(teller)
    assert NAME not in sys.modules
    module = importlib.import_module(NAME)
    assert module.work() == 5
    leave()
    assert len(teller.log) == 2
    assert not hasattr(module.work, "__wrapped__")


def test_a_library_that_is_there_is_patched_at_once(late: Point) -> None:
    """And again by the next subscriber."""
    module = importlib.import_module(NAME)
    for _ in range(3):
        teller = Teller()
        leave = late.subscribe(teller)
        module.work()
        leave()
        assert len(teller.log) == 2
        assert not hasattr(module.work, "__wrapped__")


def test_several_points_wait_for_one_library(late: Point) -> None:
    """Each has its own wait."""
    other = Point("other", "a test", library=NAME, find=lambda module: [(module, "__name__")])
    leave, leave_other = late.subscribe(Teller()), other.subscribe(Teller())
    leave_other()
    module = importlib.import_module(NAME)
    assert hasattr(module.work, "__wrapped__")
    assert module.__name__ == NAME
    leave()


def test_who_leaves_before_the_import_leaves_nothing_behind(late: Point) -> None:
    """Neither a patch nor a finder."""
    path = list(sys.meta_path)
    late.subscribe(Teller())()
    assert sys.meta_path == path
    assert not hasattr(importlib.import_module(NAME).work, "__wrapped__")
    assert finder._wanted == {}


# ── fast path ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_calls_go_through_a_lane_until_it_is_left(library: SimpleNamespace, point: Point) -> None:
    """It gets the original, and stands in its place."""
    seen: list[int] = []

    def fast(original: Callable[..., int]) -> Callable[..., int]:
        def call(value: int, **named: int) -> int:
            seen.append(value)
            return original(value, **named)

        return call

    leave = point.fast_path(fast)
    assert library.double(2, plus=1) == 5
    leave()
    leave()
    assert library.double(3) == 6
    assert seen == [2]
    assert library.double is double


def test_subscribers_are_told_around_a_fast_path(library: SimpleNamespace, point: Point) -> None:
    """Whoever comes or leaves first."""
    order: list[str] = []

    def fast(original: Callable[..., int]) -> Callable[..., int]:
        def call(value: int) -> int:
            order.append("fast")
            return original(value)

        return call

    leave_fast = point.fast_path(fast)
    teller = Teller()
    leave = point.subscribe(teller)
    assert library.double(2) == 4
    leave()
    assert library.double(2) == 4
    leave = point.subscribe(teller)
    leave_fast()
    assert library.double(2) == 4
    leave()
    assert order == ["fast", "fast"]
    assert len(teller.log) == 4
    assert library.double is double


def test_a_function_in_two_places_has_one_replacement() -> None:
    """So that it can be pickled by the name of one of them."""
    here, there = SimpleNamespace(double=double), SimpleNamespace(double=double)
    point = Point("double", "a test").install(here, "double").install(there, "double")
    leave = point.subscribe(Teller())
    assert here.double is there.double
    assert here.double is not double
    leave()
    assert here.double is there.double is double


# ── threads ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_subscribing_and_leaving_in_many_threads_leaves_the_original(library: SimpleNamespace, point: Point) -> None:
    """Whatever the order."""
    wrong: list[int] = []

    def work() -> None:
        for number in range(200):
            leave = point.subscribe(Teller())
            if library.double(number) != 2 * number:
                wrong.append(number)
            leave()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert library.double is double
