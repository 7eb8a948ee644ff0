"""Define the decorator that records each call of a function as a span."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from functools import update_wrapper
from types import FunctionType
from typing import Any, ParamSpec, TypeVar, overload

from tailrace_client import _process, _recording
from tailrace_client._recording import Traced, span

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Y = TypeVar("_Y")
_S = TypeVar("_S")
# With this type, a decorated function keeps its own type, including overloads. A ParamSpec would lose the overloads.
_F = TypeVar("_F", bound="Callable[..., Any] | staticmethod[..., Any] | classmethod[Any, ..., Any]")

_BOUND_BY_TYPE = {"__class_getitem__", "__init_subclass__", "__new__"}
"""Names of methods that `type` turns into class methods and static methods without a decorator, if they are written in
Python."""


@overload
def traced(function: _F, /) -> _F: ...
@overload
def traced(name: str | None = None, /, **attributes: object) -> Callable[[_F], _F]: ...
def traced(target: Any = None, /, **attributes: object) -> Any:
    """Record each call of a function as a span: `@traced`, `@traced("name", key=value)`.

    The default name is the function's qualified name. The attributes are the same for every call.
    An exception passes through, and its type and message become the attributes `error` and `error_message`.

    A coroutine's span ends when the coroutine returns. A generator, asynchronous or not, records one span for each step, from
    its resumption to the next `yield`. So the consumer's time does not count, and spans stay nested. The decorator may stand
    above or below `@staticmethod` and `@classmethod`.

    If the package is compiled, a call of a plain function takes no extra frame, so a recursion may be as deep as without the
    decorator (the README names the exceptions). Raise TypeError for an object that is no function, such as a class."""
    if target is None or isinstance(target, str):
        return lambda function: _traced(function, target, attributes)
    return _traced(target, None, attributes)


def _traced(function: Any, name: str | None, attributes: dict[str, object]) -> Any:  # noqa: ANN401
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(_traced(function.__func__, name, attributes))
    if not callable(function) or isinstance(function, type):
        raise TypeError(f"traced decorates functions, not {function!r}")
    if name is None:
        name = getattr(function, "__qualname__", type(function).__qualname__)
    if inspect.isasyncgenfunction(function):
        wrap: Callable[..., Any] = _async_generator
    elif inspect.iscoroutinefunction(function) or _is_generator_coroutine(function):
        wrap = _coroutine
    elif inspect.isgeneratorfunction(function):
        wrap = _generator
    else:
        wrap = _function
    wrapper = wrap(function, name, attributes)
    if isinstance(function, FunctionType):
        # The wrapper uses no globals, so it gets the function's globals. With them, `doctest` finds the wrapper in the
        # function's module.
        code, closure = wrapper.__code__, wrapper.__closure__
        wrapper = FunctionType(code, function.__globals__, function.__name__, None, closure)
    update_wrapper(wrapper, function)
    if wrap is _function and Traced and getattr(function, "__name__", None) not in _BOUND_BY_TYPE:
        return Traced(wrapper, function, name, attributes)
    return wrapper


def _is_generator_coroutine(function: object) -> bool:
    """Return whether `types.coroutine` made the function. Callers await such a function, although `inspect` reports it
    as a generator function."""
    flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
    return bool(flags & inspect.CO_ITERABLE_COROUTINE)


def _function(
    function: Callable[_P, _R], name: str, attributes: dict[str, object]
) -> Callable[_P, _R]:
    process, recording = _process, _recording

    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        emitter = process.current
        if emitter is None:
            recording.miss()
            return function(*args, **kwargs)
        with emitter.span(name, **attributes):
            return function(*args, **kwargs)

    return call


def _coroutine(
    function: Callable[_P, Awaitable[_R]], name: str, attributes: dict[str, object]
) -> Callable[_P, Coroutine[Any, Any, _R]]:
    process, recording = _process, _recording

    async def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        emitter = process.current
        if emitter is None:
            recording.miss()
            return await function(*args, **kwargs)
        with emitter.span(name, **attributes):
            return await function(*args, **kwargs)

    return call


def _generator(
    function: Callable[_P, Generator[_Y, _S, _R]], name: str, attributes: dict[str, object]
) -> Callable[_P, Generator[_Y, _S, _R]]:
    process, recording, begin = _process, _recording, span

    def call(*args: _P.args, **kwargs: _P.kwargs) -> Generator[_Y, _S, _R]:
        generator = function(*args, **kwargs)
        if process.current is None:
            recording.miss()
            return (yield from generator)
        resume: Callable[[Any], _Y] = generator.send
        value: Any = None
        while True:
            with begin(name, **attributes):
                try:
                    item = resume(value)
                except StopIteration as end:
                    result: _R = end.value
                    return result
                finally:
                    value = None  # Drop the reference: a kept exception would keep this frame alive
            try:
                resume, value = generator.send, (yield item)
            except GeneratorExit:
                with begin(name, **attributes):
                    generator.close()
                raise
            except BaseException as error:  # noqa: BLE001 - whatever was thrown in
                resume, value = generator.throw, error

    return call


def _async_generator(
    function: Callable[_P, AsyncGenerator[_Y, _S]], name: str, attributes: dict[str, object]
) -> Callable[_P, AsyncGenerator[_Y, _S]]:
    begin = span

    async def call(*args: _P.args, **kwargs: _P.kwargs) -> AsyncGenerator[_Y, _S]:
        generator = function(*args, **kwargs)
        resume: Callable[[Any], Awaitable[_Y]] = generator.asend
        value: Any = None
        while True:
            with begin(name, **attributes):
                try:
                    item = await resume(value)
                except StopAsyncIteration:
                    return
                finally:
                    value = None  # Drop the reference: a kept exception would keep this frame alive
            try:
                resume, value = generator.asend, (yield item)
            except GeneratorExit:
                with begin(name, **attributes):
                    await generator.aclose()
                raise
            except BaseException as error:  # noqa: BLE001 - whatever was thrown in
                resume, value = generator.athrow, error

    return call
