"""Define a span as a context manager."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING
from weakref import ref

if TYPE_CHECKING:
    from tailrace_client._recorder import Recorder


def add_error(attributes: dict[str, object], kind: type, error: object) -> None:
    """Add the type of an exception and its message, if any, to the attributes, unless the program has set `error`."""
    if "error" in attributes:
        return
    attributes["error"] = kind.__name__
    with suppress(Exception):  # The exception's own `__str__` may raise an exception
        if error is not None and (message := str(error)):
            attributes.setdefault("error_message", message)


class Span:
    """A span of time, recorded when it ends: `with span("step", cell=3) as step:`. A span that an exception ends has the
    attributes `error`, the exception's type, and `error_message`."""

    __slots__ = ("_attributes", "_name", "_recorder", "_start")

    def __init__(self, recorder: Recorder, name: str, attributes: dict[str, object], /) -> None:
        self._recorder = recorder
        self._name = name
        self._attributes = attributes

    def set(self, /, **attributes: object) -> None:
        """Add attributes that become available during the span."""
        self._attributes.update(attributes)

    def __enter__(self) -> Span:
        self._start = self._recorder.clock()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        recorder = self._recorder
        end = recorder.clock()
        if kind is not None:
            add_error(self._attributes, kind, error)
        recorder.write(self._name, self._start, end, self._attributes)


class _Off(Span):
    """The span that all emitters return while they are off. Its methods do nothing."""

    __slots__ = ("__weakref__",)

    def __init__(self) -> None:
        """Store no name and no attributes, because this span is never recorded."""

    def set(self, /, **attributes: object) -> None:
        """Ignore the attributes, because this span is never recorded."""


def _leave(kind: object, error: object, traceback: object) -> None:
    pass


OFF = _Off()
# With these two attributes, a `with` block of a span takes half as much time as with two methods. The interpreter calls
# `__enter__` from C, for which a C callable is cheapest: calling a weak reference returns its object. It calls
# `__exit__` from Python.
_Off.__enter__ = staticmethod(ref(OFF))  # type: ignore[assignment, method-assign]
_Off.__exit__ = staticmethod(_leave)  # type: ignore[assignment, method-assign]
