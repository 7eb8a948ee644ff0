"""Protect standard input, output and error of a process against closed, full, slow and non-blocking files.

The reader of the output may be slow or gone, the disk may be full, and the parent process may have closed a stream.
None of this may harm the collected data:

- If a stream is closed, its descriptor (0 to 2) is free. The next opened file or socket would get this descriptor, and
  messages of a library would be written to it. So `begin` opens /dev/null there in the opposite mode: input for
  writing, output for reading. Each use then fails like a use of a closed descriptor. Child processes find the
  descriptor closed.
- Standard output has the result of a command. A write waits for a slow reader, even if another process made the
  descriptor non-blocking. A failed write raises StreamError once. Later writes are ignored, so that no exit handler
  fails.
- Standard error has the messages of a command. Messages that cannot be written are dropped, without effect on the exit
  code.
- `never_wait` is for processes that collect or serve: a thread writes while the process continues. At most `ROOM` bytes
  are queued. Lines that do not fit are dropped, and the next written line states their number. At exit the process
  waits until all lines are written, or the thread has made no progress for `DRAIN_SECONDS` (`drain`).

Text is UTF-8 in any locale, and a character without a UTF-8 encoding is escaped."""

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
from tailrace.units import counted

NAMES = ("standard input", "standard output", "standard error")
STDIN, STDOUT, STDERR = range(3)

ROOM = 2**20
"""Maximum number of bytes that wait in the queue of a stream whose reader is slow. Lines beyond it are dropped."""

BUFFER = 2**16
"""Maximum length (bytes) of a line that is either written or dropped as a whole. A longer line may be cut."""

DRAIN_SECONDS = 1.0
"""Maximum time (seconds) for which the exit of a process waits for a reader that reads nothing."""

_streams: dict[int, StandardStream] = {}


def begin() -> None:
    """Protect standard input, output and error of this process, as the docstring of the module describes. Call this
    function before any file is opened."""
    for number, wrong_way in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_RDONLY)):
        try:
            os.fstat(number)
        except OSError:
            # open the lowest free descriptor, which is `number`
            os.open(os.devnull, wrong_way)
    _streams.update((number, StandardStream(number)) for number in range(len(NAMES)))
    sys.stdin, sys.stdout, sys.stderr = (stream.text() for stream in _streams.values())


def never_wait(*numbers: int) -> None:
    """Start one thread for each given standard stream. The thread does all writes to its stream, so that the process
    neither waits nor fails. If a thread cannot start, the stream stays as it is. `numbers` are file descriptors
    (`STDOUT`, `STDERR`)."""
    for number in numbers:
        stream = _streams.get(number)
        if stream is not None and stream.queue is None:
            with suppress(RuntimeError):
                stream.queue = WriteQueue(number)
                atexit.register(stream.queue.drain)


def dropped_lines() -> int:
    """Return the number of lines that all streams of this process have dropped since `never_wait` was called."""
    return sum(stream.queue.dropped for stream in _streams.values() if stream.queue)


def spell_drops(spell: Callable[[int], str]) -> None:
    """Set the function that returns the message about dropped lines on standard error, given the number of these
    lines."""
    stream = _streams.get(STDERR)
    if stream is not None and stream.queue is not None:
        stream.queue.spell = spell


def keep_errors_apart() -> None:
    """Discard what libraries write to descriptor 2 from now on. Output to Python's `sys.stderr` is kept."""
    sys.stderr.flush()
    _streams[STDERR] = StandardStream(STDERR, os.dup(STDERR))
    sys.stderr = _streams[STDERR].text()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, STDERR)
    os.close(nowhere)


def last_words(text: str) -> None:
    """Write a line to standard error, if possible without waiting. The write needs no thread and little memory."""
    poll = select.poll()
    poll.register(STDERR, select.POLLOUT)
    if poll.poll(0):
        with suppress(OSError):
            os.write(STDERR, text.encode())


class StandardStream(io.RawIOBase):
    """A standard stream that is protected as the docstring of the module describes. `keep_errors_apart` gives standard
    error a copy of descriptor 2, because it discards what libraries write to 2 itself."""

    def __init__(self, number: int, descriptor: int | None = None) -> None:
        self._descriptor = number if descriptor is None else descriptor
        self.name = ("<stdin>", "<stdout>", "<stderr>")[number]
        self.queue: WriteQueue | None = None
        self._number = number
        self._broken = False

    def text(self) -> io.TextIOWrapper:
        """Return a text stream that reads from this stream or writes to it."""
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
        except BaseException:
            # After KeyboardInterrupt, write no more to this stream. Otherwise the exit of the process would wait for a
            # slow reader again.
            self._broken = True
            raise

    def _error(self, error: OSError) -> StreamError:
        name, gone = NAMES[self._number], error.errno == errno.EPIPE
        return StreamError(f"{name}: {error.strerror}", unread=gone)


class WriteQueue:
    """A queue of bytes that a thread writes to a descriptor. Each item in it has one or more lines. `dropped` counts
    lines that did not fit or could not be written. `spell` returns the message about dropped lines."""

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
        """Add one or more lines to the queue. If the queue has no room for them, drop and count them."""
        with self._changed:
            if self._size + len(piece) > ROOM:
                self._drop(piece)
                return
            self._pieces.append(piece)
            self._size += len(piece)
            self._changed.notify_all()

    def drain(self) -> None:
        """Wait until all queued output is written, or until the stream's reader reads nothing for `DRAIN_SECONDS`."""
        with self._changed:
            while self._pieces:
                left = len(self._pieces)
                if not self._changed.wait_for(lambda n=left: len(self._pieces) < n, DRAIN_SECONDS):  # type: ignore[misc]  # the default binds
                    return

    def _run(self) -> None:
        # Block SIGTTOU: a terminal sends it to a background process that writes to it, and the process would stop.
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
        """Report the first failed write to standard output on standard error, unless the reader has closed the pipe."""
        if self._number == STDOUT and error.errno != errno.EPIPE and not self._said:
            self._said = True
            sys.stderr.write(f"tailrace: {NAMES[STDOUT]}: {error.strerror}\n")

    def _drop(self, piece: bytes) -> None:
        lines = piece.count(b"\n") or 1
        self.dropped += lines
        self._unsaid += lines


def write_all(number: int, data: memoryview) -> None:
    """Write all of `data` to a descriptor, and wait for a slow reader. Raise OSError if a write fails."""
    while data:
        try:
            data = data[os.write(number, data) :]
        except BlockingIOError:
            # Wait until the descriptor is writable, because another process has made it non-blocking.
            _wait(number, select.POLLOUT)


def _wait(number: int, event: int) -> None:
    poll = select.poll()
    poll.register(number, event)
    poll.poll()


def _spell(lines: int) -> str:
    return f"tailrace: {counted(lines, 'line before this one was', 'lines before this one were')} dropped, because nobody read them in time"
