"""Use a database safely in a program that may fork, or may close descriptors of other modules.

A program that reads a store may fork (`multiprocessing`, a DataLoader). The child lacks the threads of the
database and of the table's library. A statement in the child would wait for ever, and the destruction of a
connection would crash the child. A forked child raises an error (`check_process`), never destroys the objects
that it inherited (`keep`), and at exit removes no file that its parent still reads (`finalize`).

A program may also close every descriptor that it did not open itself (`os.closerange`, to become a daemon).
The next files that the program opens get the numbers of the closed descriptors. The table's library would
then wait for ever, or write into files of the program. Tailrace cannot open the library's descriptors again,
so `check_process` also raises an error if the library's descriptors are closed. `PipeEnd` guards a descriptor
of Tailrace's own.
"""

from __future__ import annotations

import atexit
import ctypes
import io
import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from tailrace.errors import QueryError, StoreError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


T = TypeVar("T")

_DESCRIPTORS = Path("/proc/self/fd")
_KEPT_OPEN = ("anon_inode:", "socket:", "pipe:")
"""Prefixes of the targets of descriptors that libraries keep open. Libraries open and close regular files all
the time."""


class _DatabaseHome:
    """Facts about the process in which the database runs. `home` is its process id, None before the first
    table is opened."""

    home: int | None = None
    descriptors: dict[str, str]
    """Targets of the descriptors of the table's library, by descriptor number."""
    kept: weakref.WeakSet[Any]

    def __init__(self) -> None:
        self.descriptors = {}
        self.kept = weakref.WeakSet()


_process = _DatabaseHome()


def first_opened(opening: Callable[[], T]) -> T:
    """Call `opening`, and return the opened table. The first table starts the library's threads and opens its
    descriptors.

    Raise StoreError in a process that cannot open tables any more."""
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
    """Register an object so that it is never destroyed in a process in which `is_whole` is false. Return the
    object."""
    _process.kept.add(inherited)
    return inherited


def is_whole() -> bool:
    """Return whether this process has the threads and descriptors that its database needs, or has no database
    yet.

    If the result is false, no object of the database may be destroyed, because the destruction would wait for
    threads that do not exist in this process, or close files of the program."""
    if _process.home not in {None, os.getpid()}:
        return False
    leads = [_leads_to(number) == place for number, place in _process.descriptors.items()]
    # Other threads may have opened some of these descriptors at the same moment, and may close them.
    if sum(leads) >= len(leads) / 2:
        return True
    _hold_all()
    return False


def check_process() -> None:
    """Raise StoreError if this process cannot use its database any more."""
    if is_whole():
        return
    if _process.home != os.getpid():
        raise StoreError(
            "this process was forked from one that had opened a store, and a database does not survive that: "
            "start such processes by the method spawn or forkserver, or open stores in them alone"
        )
    raise StoreError(
        "the program has closed the descriptors with which this process reads tables (os.closerange?): "
        "close descriptors before the first store is opened, or read in another process"
    )


def finalize(
    owner: object, end: Callable[..., object], *given: object
) -> weakref.finalize[..., Any]:
    """Call `end` when the owner is destroyed or this process exits. A forked child does not call `end`."""
    return weakref.finalize(owner, _end_at_home, os.getpid(), end, *given)


def _end_at_home(home: int, end: Callable[..., object], *given: object) -> None:
    if home == os.getpid():
        end(*given)


class PipeEnd(io.RawIOBase):
    """An end of a pipe. Only the process that created the object uses and closes it, and only while the
    descriptor number still refers to the pipe."""

    def __init__(self, stream: BinaryIO) -> None:
        """Duplicate the descriptor of `stream`, and close `stream`."""
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
        """Close the copy of this pipe end in a forked child. An open copy would hide from the process at the
        other end that the parent closed the pipe."""
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
    """Return the target of a descriptor as the kernel reports it, empty if the descriptor is closed."""
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
    """Add a permanent reference to each kept object, so that even the end of the interpreter does not destroy
    it."""
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
    """Redirect the C library's `stderr` to /dev/null.

    Without the redirection, DuckDB's binding would print each object that was never destroyed to this stream
    at exit. Python's own standard error does not use the C library's stream."""
    with suppress(ValueError, AttributeError):  # another C library
        library = ctypes.CDLL(None)
        library.fopen.restype = ctypes.c_void_p
        ctypes.c_void_p.in_dll(library, "stderr").value = library.fopen(b"/dev/null", b"w")


os.register_at_fork(after_in_child=_in_child)
