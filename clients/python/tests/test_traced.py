from __future__ import annotations

import asyncio
import copy
import doctest
import functools
import gc
import inspect
import multiprocessing
import pickle
import pydoc
import signal
import subprocess
import sys
import threading
import types
import typing
import weakref
from contextlib import suppress
from itertools import pairwise
from unittest import mock

import pytest

import tailrace_client
from clients.python.tests.reader import attributes
from tailrace_client import _traced, traced


def names(found):
    return [event.description for event in found]


@traced
def double(number: int, *, plus: int = 0) -> int:
    """Twice the number."""
    return 2 * number + plus


class Solver:
    def __init__(self, factor):
        self.factor = factor

    @traced
    def method(self, number):
        return self.factor * number

    @traced
    @staticmethod
    def static_below(number):
        return number

    @staticmethod
    @traced
    def static_above(number):
        return number

    @traced("by class", kind="below")
    @classmethod
    def class_below(cls, number):
        return cls, number

    @classmethod
    @traced
    def class_above(cls, number):
        return cls, number

    @property
    @traced
    def size(self):
        return 7


def test_a_call_is_a_span_with_the_functions_name(emitted):
    assert double(2, plus=1) == 5
    (span,) = emitted()
    assert span.description == "double"
    assert span.attributes == []
    assert span.end >= span.start


def test_it_keeps_what_others_ask_a_function_for():
    assert double.__name__ == "double"
    assert double.__doc__ == "Twice the number."
    assert str(inspect.signature(double)) == "(number: 'int', *, plus: 'int' = 0) -> 'int'"
    assert double.__module__ == __name__
    assert not inspect.iscoroutinefunction(double)


def test_a_name_and_attributes_may_be_given(emitted):
    @traced("step", cell=3)
    def named():
        return 1

    @traced(cell=4)
    def unnamed():
        return 2

    @traced()
    def plain():
        return 3

    assert (named(), named(), unnamed(), plain()) == (1, 1, 2, 3)
    first, second, third, fourth = emitted()
    assert (first.description, attributes(first)) == ("step", {"cell": 3})
    assert (second.description, attributes(second)) == ("step", {"cell": 3})
    assert third.description.endswith("<locals>.unnamed")
    assert attributes(third) == {"cell": 4}
    assert attributes(fourth) == {}


def test_methods_of_every_kind(emitted):
    solver = Solver(3)
    assert solver.method(2) == 6
    assert Solver.static_below(1) == solver.static_below(1) == 1
    assert Solver.static_above(1) == solver.static_above(1) == 1
    assert Solver.class_below(1) == solver.class_below(1) == (Solver, 1)
    assert Solver.class_above(1) == solver.class_above(1) == (Solver, 1)
    assert solver.size == 7
    found = emitted()
    assert names(found) == [
        "Solver.method",
        *["Solver.static_below"] * 2,
        *["Solver.static_above"] * 2,
        *["by class"] * 2,
        *["Solver.class_above"] * 2,
        "Solver.size",
    ]


def test_an_exception_passes_through_and_is_named(emitted):
    @traced
    def fail():
        raise KeyError(1)

    with pytest.raises(KeyError) as raised:
        fail()
    assert raised.value.args == (1,)
    (span,) = emitted()
    assert attributes(span) == {"error": "KeyError", "error_message": "1"}


def test_what_is_no_function_is_refused():
    for item in (Solver, 7, None.__class__):
        with pytest.raises(TypeError, match="traced decorates functions"):
            traced("name")(item)


def test_callable_objects(emitted):
    class Callable:
        def __call__(self):
            return 5

    assert traced(Callable())() == 5
    assert traced(functools.partial(double, 4))() == 8
    assert traced("length")(len)("abc") == 3
    assert names(emitted())[1:] == ["double", "partial", "length"]


def test_a_coroutines_span_lasts_until_it_returns(emitted):
    @traced("outer")
    async def outer():
        with tailrace_client.span("before"):
            await asyncio.sleep(0)
        await inner()
        return 9

    @traced("inner")
    async def inner():
        await asyncio.sleep(0)

    @traced("old")
    @types.coroutine
    def old():
        yield from asyncio.sleep(0).__await__()
        return 8

    async def main():
        return await outer(), await old()

    assert inspect.iscoroutinefunction(outer)
    assert asyncio.run(main()) == (9, 8)
    before, inner_span, outer_span, old_span = emitted()
    assert outer_span.start <= before.start
    assert before.end <= inner_span.start
    assert inner_span.end <= outer_span.end
    assert names([inner_span, outer_span, old_span]) == ["inner", "outer", "old"]


def test_a_cancelled_coroutine_says_so(emitted):
    @traced("forever")
    async def forever():
        await asyncio.sleep(3600)

    async def main():
        task = asyncio.create_task(forever())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    (span,) = emitted()
    assert attributes(span) == {"error": "CancelledError"}


def generator_protocol(make):
    """Return the results of all operations that a consumer can perform on a generator."""
    seen = []
    generator = make()
    seen += [next(generator), generator.send("sent"), generator.throw(KeyError("thrown"))]
    try:
        next(generator)
    except StopIteration as end:
        seen.append(end.value)
    closed = make()
    next(closed)
    closed.close()
    seen.append(list(closed))
    failing = make()
    next(failing)
    try:
        failing.throw(ValueError("out"))
    except ValueError as error:
        seen.append(str(error))
    return seen


def scenario():
    try:
        got = yield 1
        try:
            yield got
        except KeyError as error:
            yield repr(error)
        return "returned"
    finally:
        tailrace_client.event("cleaned")


@pytest.mark.parametrize("on", [True, False])
def test_a_generator_keeps_its_whole_protocol(emitted, on):
    if not on:
        emitted()
    wrapped = traced("steps")(scenario)
    assert inspect.isgeneratorfunction(wrapped)
    assert generator_protocol(wrapped) == generator_protocol(scenario)


def test_a_generator_is_a_span_for_each_step_and_none_for_its_consumer(emitted):
    @traced("generate")
    def numbers():
        yield 1
        yield 2

    for number in numbers():
        with tailrace_client.span("consume", number=number):
            pass
    found = emitted()
    assert names(found) == ["generate", "consume", "generate", "consume", "generate"]
    assert all(left.end <= right.start for left, right in pairwise(found))
    assert all("error" not in attributes(event) for event in found)


def test_what_a_generator_does_when_it_is_closed_is_a_step_too(emitted):
    closed = traced("steps")(scenario)()
    next(closed)
    closed.close()

    async def close():
        closed = traced("async steps")(async_scenario)()
        await closed.__anext__()
        await closed.aclose()

    asyncio.run(close())
    found = emitted()
    assert names(found) == ["steps", "cleaned", "steps", "async steps", "cleaned", "async steps"]
    assert all(found[at].start <= found[at - 1].start <= found[at].end for at in (2, 5))


def test_a_generators_own_exception_marks_its_step(emitted):
    @traced("generate")
    def numbers():
        yield 1
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011 - it has no message
        list(numbers())
    assert [attributes(event) for event in emitted()] == [{}, {"error": "OSError"}]


def test_a_generator_that_was_connected_later_is_off_or_on_but_works(tmp_path):
    tailrace_client.close()

    @traced
    def numbers():
        yield from range(3)

    running = numbers()
    assert next(running) == 0
    tailrace_client.connect(f"file://{tmp_path}/x")
    assert list(running) == [1, 2]
    tailrace_client.close()


def test_a_thrown_exception_is_not_kept(emitted):
    @traced
    def numbers():
        while True:
            with suppress(BigError):
                yield 1

    class BigError(KeyError):
        pass

    generator = numbers()
    next(generator)
    gc.disable()
    try:
        error = BigError()
        gone = weakref.ref(error)
        generator.throw(error)
        del error
        assert gone() is None
    finally:
        gc.enable()


async def async_protocol(make):
    seen = []
    generator = make()
    seen.append(await generator.__anext__())
    seen.append(await generator.asend("sent"))
    seen.append(await generator.athrow(KeyError("thrown")))
    seen.append([item async for item in generator])
    closed = make()
    await closed.__anext__()
    await closed.aclose()
    seen.append([item async for item in closed])
    failing = make()
    await failing.__anext__()
    try:
        await failing.athrow(ValueError("out"))
    except ValueError as error:
        seen.append(str(error))
    return seen


async def async_scenario():
    try:
        got = yield 1
        try:
            await asyncio.sleep(0)
            yield got
        except KeyError as error:
            yield repr(error)
    finally:
        await asyncio.sleep(0)
        tailrace_client.event("cleaned")


@pytest.mark.parametrize("on", [True, False])
def test_an_async_generator_keeps_its_whole_protocol(emitted, on):
    if not on:
        emitted()
    wrapped = traced("steps")(async_scenario)
    assert inspect.isasyncgenfunction(wrapped)
    assert asyncio.run(async_protocol(wrapped)) == asyncio.run(async_protocol(async_scenario))
    assert names(emitted()).count("steps") == (8 if on else 0)


def test_it_changes_nothing_while_nothing_is_connected():
    tailrace_client.close()
    assert double(3) == 6
    assert list(traced(lambda: (yield 5))()) == [5]
    assert asyncio.run(traced(async_scenario)().__anext__()) == 1


# A decorated function as other code sees it, compiled or not


@pytest.fixture(params=["compiled", "python"])
def decorate(request, monkeypatch):
    """Return the decorator, once with its compiled type and once with its wrapper in Python."""
    if request.param == "python":
        monkeypatch.setattr(_traced, "Traced", None)
    elif _traced.Traced is None:
        pytest.skip("this Python has no compiled type")
    return traced


def triple(number: int, /, *, plus: int = 0) -> int:
    """Return three times a number.

    >>> triple(2)
    6
    """
    return 3 * number + plus


def test_a_decorated_function_is_a_function_to_others(decorate):
    decorated = decorate(triple)
    assert inspect.isfunction(decorated)
    assert inspect.isroutine(decorated)
    assert callable(decorated)
    assert inspect.signature(decorated) == inspect.signature(triple)
    assert typing.get_type_hints(decorated) == typing.get_type_hints(triple)
    assert inspect.unwrap(decorated) is triple
    assert repr(decorated).startswith("<function triple at ")
    shown = pydoc.plain(pydoc.render_doc(decorated))
    assert shown == pydoc.plain(pydoc.render_doc(triple))
    assert set(dir(decorated)) == {*dir(triple), "__wrapped__"}
    assert decorated.__call__(2, plus=1) == 7
    with pytest.raises(TypeError, match=r"triple\(\) got an unexpected keyword argument"):
        decorated(2, minus=1)


def test_doctest_finds_it_in_its_module(decorate, monkeypatch):
    module = sys.modules[__name__]
    monkeypatch.setattr(module, "triple", decorate(triple))
    found = [each for each in doctest.DocTestFinder().find(module) if each.examples]
    assert [each.name for each in found] == [f"{__name__}.triple"]
    assert doctest.DocTestRunner().run(found[0]) == (0, 1)


def test_attributes_may_be_set_and_deleted(decorate):
    decorated = decorate(triple)
    decorated.cells = 3
    decorated.__doc__ = "Other."
    decorated.__name__ = "other"
    assert (decorated.cells, decorated.__doc__, decorated.__name__) == (3, "Other.", "other")
    assert vars(decorated) == {"cells": 3, "__wrapped__": triple}
    del decorated.cells
    assert not hasattr(decorated, "cells")
    assert triple.__name__ == "triple"


def test_singledispatch_and_autospec_take_it(decorate):
    class Tool:
        @decorate
        def method(self, number):
            return number

    general = functools.singledispatch(decorate(triple))
    general.register(str)(decorate(lambda text: text.upper()))
    assert (general(2), general("a")) == (6, "A")
    double_of_function = mock.create_autospec(decorate(triple), return_value=1)
    assert double_of_function(2, plus=3) == 1
    double_of_class = mock.create_autospec(Tool)
    double_of_class().method(2)
    for call in (double_of_function, double_of_class().method):
        with pytest.raises(TypeError):
            call(1, 2, 3)


def test_it_is_copied_and_pickled_by_its_name():
    for function in (double, Solver.method, Solver.static_above):
        assert pickle.loads(pickle.dumps(function)) is function  # noqa: S301 - our own
        assert copy.copy(function) is copy.deepcopy(function) is function
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(double, [1, 2]) == [2, 4]


def test_methods_that_a_class_binds_by_their_names_are_bound(emitted, decorate):
    class Base:
        @decorate
        def __new__(cls, *args):
            return super().__new__(cls)

        @decorate
        def __init_subclass__(cls, **keywords):
            cls.keywords = keywords

        @decorate
        def __class_getitem__(cls, item):
            return cls, item

    class Derived(Base, cell=3):
        pass

    assert type(Derived(1)) is Derived
    assert Derived.keywords == {"cell": 3}
    assert Derived[int] == (Derived, int)
    ends = [name.rpartition(".")[2] for name in names(emitted())]
    assert ends == ["__init_subclass__", "__new__", "__class_getitem__"]


def test_the_type_of_a_decorated_function_has_a_module(decorate):
    decorated = decorate(triple)
    assert isinstance(type(decorated).__module__, str)
    assert decorated.__module__ == __name__
    decorated.__module__ = "other"
    assert (decorated.__module__, triple.__module__) == ("other", __name__)


@pytest.mark.parametrize("function", [triple, scenario, async_scenario])
def test_a_wrapper_holds_no_copy_of_the_counter(function, monkeypatch):
    """The package cloudpickle copies all objects to which a wrapper refers, unless it can import the wrapper by its
    name."""
    monkeypatch.setattr(_traced, "Traced", None)
    cells = [cell.cell_contents for cell in traced(function).__closure__]
    for held in filter(callable, cells):
        assert getattr(sys.modules[held.__module__], held.__name__) is held


def test_it_goes_with_its_last_reference_also_from_a_cycle(decorate):
    def make():
        @decorate(values=[])
        def function():
            return function

        assert function() is function
        return weakref.ref(function)

    gone = make()
    gc.collect()
    assert gone() is None


def test_pytest_collects_it(tmp_path):
    path = tmp_path / "test_decorated.py"
    path.write_text(
        "import tailrace_client\n"
        "@tailrace_client.traced\ndef test_function(tmp_path): assert tmp_path.exists()\n"
        "class TestClass:\n    @tailrace_client.traced\n    def test_method(self, tmp_path): assert tmp_path.exists()\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "2 passed" in ended.stdout
    assert "warning" not in ended.stdout


# The depth of recursions


class Levels:
    """Recursions of each kind, decorated or not."""

    def __init__(self, decorate):
        class Kinds:
            @decorate
            def method(self, left):
                return left and 1 + self.method(left - 1)

            @staticmethod
            @decorate
            def static(left):
                return left and 1 + Kinds.static(left - 1)

            @decorate
            @classmethod
            def of_class(cls, left):
                return left and 1 + cls.of_class(left - 1)

        @decorate
        def function(left):
            return left and 1 + function(left - 1)

        @decorate
        def keyword(left=0, *, step):
            return left and 1 + keyword(left=left - step, step=step)

        self.all = [
            function, Kinds().method, Kinds.static, Kinds.of_class,
            functools.partial(keyword, step=1),
        ]  # fmt: skip


def deepest(function, limit):
    """Return the deepest recursion of a function under a recursion limit, in a new thread with an empty stack."""
    found = []

    def search():
        low, high = 1, limit
        while low < high:
            middle = (low + high + 1) // 2
            try:
                assert function(middle) == middle
                low = middle
            except RecursionError:
                high = middle - 1
        found.append(low)

    before = sys.getrecursionlimit()
    sys.setrecursionlimit(limit)
    try:
        thread = threading.Thread(target=search)
        thread.start()
        thread.join()
    finally:
        sys.setrecursionlimit(before)
    return found[0]


@pytest.mark.skipif(_traced.Traced is None, reason="needs the compiled type")
@pytest.mark.parametrize("limit", [1_000, 5_000 if sys.version_info < (3, 12) else 3_000])
@pytest.mark.parametrize("on", [True, False])
def test_a_recursion_is_as_deep_as_without_it(emitted, on, limit):
    if not on:
        emitted()
    plain, decorated = (
        [deepest(function, limit) for function in Levels(kind).all]
        for kind in (lambda function: function, traced)
    )
    assert decorated == plain
    assert min(plain) > limit - 20


def test_a_recursion_too_deep_passes_through_each_level(emitted):
    (function, *_) = Levels(traced).all
    with pytest.raises(RecursionError):
        function(10**6)
    discarded = tailrace_client._process.current.discarded  # no room on the stack
    found = emitted()
    assert {event.description for event in found} == {"Levels.__init__.<locals>.function"}
    assert all(attributes(event)["error"] == "RecursionError" for event in found)
    assert len(found) + sum(discarded.values()) > 400


def failing(directory, decorate, clock_fails, error):
    """Return the exception of a decorated function that raises `error`, if the client's clock then calls
    `clock_fails`."""
    readings = iter([1])

    def clock():
        for reading in readings:
            return reading
        return clock_fails()

    @decorate
    def fail():
        raise error

    tailrace_client.connect(f"file://{directory}/x", clock=clock)
    try:
        with pytest.raises(BaseException) as raised:  # noqa: PT011 - the caller looks at it
            fail()
    finally:
        tailrace_client.close()
    return raised.value


def test_an_exception_of_recording_has_the_functions_as_its_context(tmp_path, decorate):
    raised = failing(tmp_path, decorate, lambda: sys.exit(3), KeyError(1))
    assert isinstance(raised, SystemExit)
    assert isinstance(raised.__context__, KeyError)


def test_the_context_of_an_exception_of_recording_is_kept(tmp_path, decorate):
    """The clock's exception has a context of its own, whose context is the function's exception."""

    def clock_fails():
        try:
            raise OSError  # noqa: TRY301 - it is the context
        except OSError:
            raise SystemExit(3)  # noqa: B904 - the context is meant

    raised = failing(tmp_path, decorate, clock_fails, KeyError(1))
    assert isinstance(raised, SystemExit)
    first = raised.__context__
    assert isinstance(first, OSError)
    assert isinstance(first.__context__, KeyError)
    assert first.__context__.__context__ is None


def test_an_exception_that_the_clock_raises_again_is_not_its_own_context(tmp_path, decorate):
    error = KeyError(1)

    def clock_fails():
        raise error

    assert failing(tmp_path, decorate, clock_fails, error) is error
    assert error.__context__ is None


CLOCK_THAT_CONNECTS = """
import gc, sys, tailrace_client as t
def clock():
    global again
    if again:
        again = False
        t.connect(sys.argv[1])
        gc.collect()
        [bytearray(size) for size in range(2000)]
    return 7
again = False
@t.traced
def function():
    return 5
for _ in range(20):
    t.connect(sys.argv[1], clock=clock)
    again = True
    assert function() == 5
t.close()
"""


@pytest.mark.parametrize("pure", ["", "1"])
def test_a_clock_that_connects_again_frees_nothing_that_is_in_use(tmp_path, pure):
    ended = subprocess.run(
        [sys.executable, "-c", CLOCK_THAT_CONNECTS, f"file://{tmp_path}/x"],
        env={"PYTHONPATH": ":".join(sys.path), "TAILRACE_PURE": pure},
        check=False,
    )
    assert ended.returncode == 0


def test_a_signal_handler_ends_the_function_and_its_span(emitted, decorate):
    def interrupt(number, frame):
        raise InterruptedError("stop")

    @decorate("wait")
    def wait():
        signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(InterruptedError, match="stop"):
            wait()
    finally:
        signal.signal(signal.SIGUSR1, before)
    (span,) = emitted()
    assert attributes(span) == {"error": "InterruptedError", "error_message": "stop"}
