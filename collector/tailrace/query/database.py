"""Use a database safely in a program that may fork, or that may close descriptors of other modules.

A forked child lacks the threads of the database: a statement would wait for ever, and destroying a connection would
crash the process. Therefore the child raises an error instead (`check_process`), never destroys the inherited objects
(`keep`), and at exit removes no file that its parent still reads (`finalize`). A program that closes all descriptors,
for example with `os.closerange`, later uses their numbers for its own files, and the database would write into these
files. `PipeEnd` protects the pipes of Tailrace itself."""

from __future__ import annotations

import atexit
import ctypes
import io
import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from tailrace.errors import QueryError, StoreError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


T = TypeVar("T")

_DESCRIPTORS = Path("/proc/self/fd")
_KEPT_OPEN = ("anon_inode:", "socket:", "pipe:")
"""Beginnings of the targets of links in /proc/self/fd. Only descriptors with such targets are noted, because libraries
keep these open. Libraries do not keep descriptors of files open."""


@dataclass
class _DatabaseHome:
    """The process that opened the first table, and facts that show whether the present process can still use the
    database."""

    home: int | None = None
    """PID of the process, None if no table was opened yet."""
    descriptors: dict[str, str] = field(default_factory=dict)
    """The descriptors that the database library (DuckDB) has opened, by number. Each has its link in /proc/self/fd at
    the time when the table was opened."""
    kept: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)


_process = _DatabaseHome()


def first_opened(opening: Callable[[], T]) -> T:
    """Call `opening` to open a table, and return its result. At the first call, note the library's descriptors. Raise
    StoreError if this process was forked, or these descriptors were closed, after the first call."""
    check_process()
    if _process.home is not None:
        return opening()
    before = _open_descriptors()
    try:
        return opening()
    finally:
        _process.home = os.getpid()
        after = _open_descriptors()
        _process.descriptors = {n: after[n] for n in after.keys() - before.keys()}


def keep(inherited: T) -> T:
    """Register and return an object of the database, which is then never destroyed in a process that cannot use it."""
    _process.kept.add(inherited)
    return inherited


def is_whole() -> bool:
    """Return whether this process still has the threads and descriptors of its database, or has not opened a table
    yet. Otherwise no object of the database may be destroyed: this would wait for threads that do not exist, or
    close other files."""
    if _process.home not in {None, os.getpid()}:
        return False
    leads = [_leads_to(number) == place for number, place in _process.descriptors.items()]
    # The noted descriptors may include some of other threads, which have closed them since. So the database counts as
    # intact if at least half of the noted descriptors are unchanged.
    if sum(leads) >= len(leads) / 2:
        return True
    _hold_all()
    return False


def check_process() -> None:
    """Raise StoreError if this process was forked, or its descriptors closed, after a table was opened."""
    if is_whole():
        return
    if _process.home != os.getpid():
        raise StoreError(
            "this process was forked after its parent had opened a store, so it cannot use the database: "
            "start such processes by the method spawn or forkserver, or open stores only in the children"
        )
    raise StoreError(
        "the program has closed the descriptors with which this process reads tables (os.closerange?): "
        "close descriptors before the first store is opened, or read in another process"
    )


def finalize(
    owner: object, end: Callable[..., object], *given: object
) -> weakref.finalize[..., Any]:
    """Call `end(*given)` when the object `owner` is destroyed or this process exits, but never in a forked child."""
    home = os.getpid()

    def end_at_home() -> None:
        if home == os.getpid():
            end(*given)

    return weakref.finalize(owner, end_at_home)


class PipeEnd(io.RawIOBase):
    """One end of a pipe to another process. It uses its descriptor only in the process that created this object, and
    only while the descriptor's number still refers to the pipe."""

    def __init__(self, stream: BinaryIO) -> None:
        """Take over the pipe of `stream`: duplicate the descriptor, and close `stream`."""
        self._writes = stream.writable()
        self._number = os.dup(stream.fileno())
        stream.close()
        self._home = os.getpid()
        self._place = _leads_to(self._number)
        keep(self)

    def readable(self) -> bool:
        return not self._writes

    def writable(self) -> bool:
        return self._writes

    def readinto(self, buffer: WriteableBuffer) -> int:
        return os.readv(self._own(), [buffer])

    def write(self, data: Any) -> int:  # noqa: ANN401 - as its base class
        return os.write(self._own(), data)

    def close(self) -> None:
        if not self.closed and self._is_ours() and self._home == os.getpid():
            os.close(self._number)
        super().close()

    def abandon(self) -> None:
        """Close the copy of this pipe end in a forked child, so that only the parent keeps the pipe open."""
        if self._is_ours():
            os.close(self._number)

    def _own(self) -> int:
        if self._home == os.getpid() and self._is_ours():
            return self._number
        check_process()
        raise QueryError("the program has closed the pipe to the statement's process: ask again")

    def _is_ours(self) -> bool:
        return _leads_to(self._number) == self._place


def _leads_to(number: int | str) -> str:
    try:
        return str((_DESCRIPTORS / str(number)).readlink())
    except OSError:
        return ""


def _open_descriptors() -> dict[str, str]:
    found: dict[str, str] = {}
    with suppress(OSError):
        found = {link.name: _leads_to(link.name) for link in _DESCRIPTORS.iterdir()}
    return {number: place for number, place in found.items() if place.startswith(_KEPT_OPEN)}


def _hold_all() -> None:
    """Keep all registered objects alive, even at the end of the interpreter, until the process is gone."""
    if _process.kept:
        atexit.register(_mute_libraries)
    while _process.kept:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(_process.kept.pop()))


def _in_child() -> None:
    for inherited in list(_process.kept):
        if isinstance(inherited, PipeEnd):
            inherited.abandon()
    _hold_all()


def _mute_libraries() -> None:
    """Redirect the C library's `stderr` (not Python's) to /dev/null. Otherwise, DuckDB's binding would print a line
    at exit for each of its objects that was never destroyed."""
    with suppress(ValueError, AttributeError):
        # do nothing if the C library lacks `fopen` or `stderr`
        library = ctypes.CDLL(None)
        library.fopen.restype = ctypes.c_void_p
        ctypes.c_void_p.in_dll(library, "stderr").value = library.fopen(b"/dev/null", b"w")


os.register_at_fork(after_in_child=_in_child)
