"""The standard streams of a process: standard input, output and error, whatever is behind them.

People and programs read what we print. They may be slow or gone, the disk may be full, and whoever started us may have
closed a stream. None of that may reach data:

- A descriptor from 0 to 2 that is closed would become a file of the store, or a socket, and a library's message would be
  written into it. So `begin` opens /dev/null there in the opposite mode, input for writing and output for reading:
  each use fails as on a closed descriptor. Programs that we start find it closed, as we did, because it is closed on
  exec.
- Standard output is what a command was asked for. It waits for a slow reader, also where another process made the
  descriptor non-blocking. A failed write raises StreamError, once: later writes go nowhere, so that no exit
  handler fails again.
- Standard error has the messages of a command. Messages that cannot be written there are dropped, and change no exit
  code.
- `never_wait` is for processes that collect or serve: a thread writes, and the process goes on. At most `ROOM` bytes wait.
  Lines that do not fit are dropped and counted, and the next line that passes says how many. The end of the process
  waits as long as the thread makes progress, and `DRAIN_SECONDS` longer (`drain`).

Text is UTF-8 whatever the locale, and a character that has no UTF-8 is escaped.
"""

from __future__ import annotations

import atexit
import errno
import io
import os
import select
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from tailrace.errors import StreamError

NAMES = ("standard input", "standard output", "standard error")
STDIN, STDOUT, STDERR = range(3)

ROOM = 2**20
"""Bytes that wait for a reader at most."""

BUFFER = 2**16
"""Bytes of a line that is dropped or written as a whole."""

DRAIN_SECONDS = 1.0
"""How long the end of a process waits for a reader that takes nothing."""

_streams: dict[int, StandardStream] = {}


def begin() -> None:
    """Make the standard streams of this process safe to use. Call this before anything opens a file."""
    for number, wrong_way in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_RDONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, wrong_way)  # gets the lowest number that is free, which is this one
    _streams.update((number, StandardStream(number)) for number in range(len(NAMES)))
    sys.stdin, sys.stdout, sys.stderr = (stream.text() for stream in _streams.values())


def never_wait(*numbers: int) -> None:
    """Make a thread write these streams from now on, so that no write waits for a reader or fails. Change nothing if
    no thread can be started."""
    for number in numbers:
        stream = _streams.get(number)
        if stream is not None and stream.queue is None:
            with suppress(RuntimeError):
                stream.queue = WriteQueue(number)
                atexit.register(stream.queue.drain)


def dropped_lines() -> int:
    """Return how many lines of this process found no reader in time, since `never_wait`."""
    return sum(stream.queue.dropped for stream in _streams.values() if stream.queue)


def spell_drops(spell: Callable[[int], str]) -> None:
    """Choose the line on standard error that says how many lines before it were dropped."""
    stream = _streams.get(STDERR)
    if stream is not None and stream.queue is not None:
        stream.queue.spell = spell


def keep_errors_apart() -> None:
    """Discard what libraries write to standard error from now on, while Python's own words still go there."""
    sys.stderr.flush()
    _streams[STDERR] = StandardStream(STDERR, os.dup(STDERR))
    sys.stderr = _streams[STDERR].text()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, STDERR)
    os.close(nowhere)


def last_words(text: str) -> None:
    """Write a line to standard error if it takes the line at once. It needs no thread and hardly any memory."""
    poll = select.poll()
    poll.register(STDERR, select.POLLOUT)
    if poll.poll(0):
        with suppress(OSError):
            os.write(STDERR, text.encode())


class StandardStream(io.RawIOBase):
    """A standard stream, which may be at another descriptor than its number."""

    def __init__(self, number: int, descriptor: int | None = None) -> None:
        self._descriptor = number if descriptor is None else descriptor
        self.name = ("<stdin>", "<stdout>", "<stderr>")[number]
        self.queue: WriteQueue | None = None
        self._number = number
        self._broken = False

    def text(self) -> io.TextIOWrapper:
        """Return the stream of text above it."""
        if self._number == STDIN:
            return io.TextIOWrapper(io.BufferedReader(self), encoding="utf-8")
        lines = self._number == STDERR or self.isatty()
        return io.TextIOWrapper(
            io.BufferedWriter(self, BUFFER),
            encoding="utf-8", errors="backslashreplace", line_buffering=lines,
        )  # fmt: skip

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]  # the protocol is named in 3.12
        while True:
            try:
                data = os.read(self._descriptor, len(view))
            except BlockingIOError:
                _wait(self._descriptor, select.POLLIN)
            except OSError as error:
                raise self._error(error) from error
            else:
                view[: len(data)] = data
                return len(data)

    def write(self, data: object) -> int:
        view = memoryview(data).cast("B")  # type: ignore[arg-type]  # as above
        if self.queue is not None:
            self.queue.put(bytes(view))
        elif not self._broken:
            self._write(view)
        return len(view)

    def readable(self) -> bool:
        return self._number == STDIN

    def writable(self) -> bool:
        return self._number != STDIN

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def _write(self, data: memoryview) -> None:
        try:
            write_all(self._descriptor, data)
        except OSError as error:
            if self._number == STDOUT:
                self._broken = True
                raise self._error(error) from error
        except BaseException:  # KeyboardInterrupt: the end does not wait for this reader again
            self._broken = True
            raise

    def _error(self, error: OSError) -> StreamError:
        name, gone = NAMES[self._number], error.errno == errno.EPIPE
        return StreamError(f"{name}: {error.strerror}", unread=gone)


class WriteQueue:
    """Bytes on their way to a descriptor, which a thread writes; in pieces, each of one line or more.

    `dropped` counts lines that did not fit or could not be written. `spell` makes the line that says so."""

    def __init__(self, number: int) -> None:
        self.dropped = 0
        self.spell: Callable[[int], str] = _spell
        self._number = number
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._unsaid = 0
        self._said = False
        self._changed = threading.Condition()
        threading.Thread(target=self._run, daemon=True).start()

    def put(self, piece: bytes) -> None:
        """Queue a piece, or count its lines as dropped."""
        with self._changed:
            if self._size + len(piece) > ROOM:
                self._drop(piece)
                return
            self._pieces.append(piece)
            self._size += len(piece)
            self._changed.notify_all()

    def drain(self) -> None:
        """Wait until all is written, or the reader takes nothing for a while."""
        with self._changed:
            while self._pieces:
                left = len(self._pieces)
                if not self._changed.wait_for(lambda n=left: len(self._pieces) < n, DRAIN_SECONDS):  # type: ignore[misc]  # the default binds
                    return

    def _run(self) -> None:
        # To write from the background of a terminal may stop the process, unless this signal is blocked.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pieces)
                piece, unsaid = self._pieces[0], self._unsaid
            try:
                if unsaid:
                    write_all(self._number, memoryview(f"{self.spell(unsaid)}\n".encode()))
                    with self._changed:
                        self._unsaid -= unsaid
                write_all(self._number, memoryview(piece))
                written = True
            except OSError as error:
                written = False
                self._report(error)
            with self._changed:
                if not written:
                    self._drop(piece)
                self._pieces.popleft()
                self._size -= len(piece)
                self._changed.notify_all()

    def _report(self, error: OSError) -> None:
        """Name an error of standard output on standard error, once."""
        if self._number == STDOUT and error.errno != errno.EPIPE and not self._said:
            self._said = True
            sys.stderr.write(f"tailrace: {NAMES[STDOUT]}: {error.strerror}\n")

    def _drop(self, piece: bytes) -> None:
        lines = piece.count(b"\n") or 1
        self.dropped += lines
        self._unsaid += lines


def write_all(number: int, data: memoryview) -> None:
    """Write all of it, however slow the reader is. Raise OSError."""
    while data:
        try:
            data = data[os.write(number, data) :]
        except BlockingIOError:  # another process made it non-blocking
            _wait(number, select.POLLOUT)


def _wait(number: int, event: int) -> None:
    poll = select.poll()
    poll.register(number, event)
    poll.poll()


def _spell(lines: int) -> str:
    return f"tailrace: {lines} lines before this one were dropped, because nobody read them in time"
