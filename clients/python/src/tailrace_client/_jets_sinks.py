"""The sinks of JETS lines: a sender over a connection, or a binary file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from tailrace_client._chunk import UNNUMBERED, Chunk
from tailrace_client._sender import Sender
from tailrace_client._transport import Transport

CLOSE_SECONDS = 1.0
"""How long a writer waits until its lines are sent, unless the program says how long."""


class SenderSink:
    """The recorder of a JETS writer. Each line is a chunk."""

    def __init__(self, transport: Transport, limit: int) -> None:
        self._sender = Sender(transport, room=0, on_fork=self._begin)
        self._limit = limit
        self._longest = transport.packet_max
        self._chunk = transport.chunk_bytes
        self._header = _Header()
        self._begin()

    def _begin(self) -> None:
        self._lines: list[bytes] = []
        self._waiting = self._unreleased = 0
        self.discarded: dict[str, int] = {}
        self._sender.begin(self, self._header)

    @property
    def dropped(self) -> int:
        return sum(self.discarded.values())

    def begin(self, header: bytes) -> None:
        """Send the header first on every connection."""
        self._header.line = header

    def put(self, line: bytes) -> None:
        size = len(line)
        if size > self._longest or self._unreleased + size > self._limit:
            self.discard("oversize" if size > self._longest else "full")
            return
        first = not self._lines
        self._lines.append(line)
        self._unreleased += size
        self._waiting += size
        if first:
            self._waiting = size
            self._sender.started()
        elif self._waiting >= self._chunk:
            self._waiting = 0
            self._sender.filled()

    def take(self) -> list[Chunk]:
        lines, self._lines = self._lines, []
        return [Chunk(line, UNNUMBERED, 0, 0) for line in lines]

    def release(self, size: int) -> None:
        self._unreleased -= size

    def discard(self, reason: str, count: int = 1, /) -> None:
        self.discarded[reason] = self.discarded.get(reason, 0) + count

    def next_numbers(self) -> dict[int, int]:
        return {}

    def unbroken(self) -> bool:
        """Return whether all lines so far went over one connection, as far as is known."""
        self._sender.flush(CLOSE_SECONDS)
        return self._sender.connections <= 1

    def flush(self, timeout: float) -> bool:
        return self._sender.flush(timeout)

    def finish(self, timeout: float) -> bool:
        return self._sender.close(timeout)

    def close(self) -> None:
        self._limit = 0


class _Header:
    """The dialogue of JETS: only a header. JETS has no sessions, and nobody answers."""

    asks = False
    turn = 0
    answered = -1

    def __init__(self) -> None:
        self.line = b""

    def announcement(self) -> bytes:
        return self.line

    def report(self, *_: object, elsewhere: bool = False) -> bytes:  # noqa: ARG002 - the protocol's
        return b""

    def reached(self, *_: object) -> bytes:
        return b""

    def goodbyes(self, *_: object) -> Iterator[bytes]:
        return iter(())

    def hear(self, *_: object) -> None:
        return None

    def count(self, data: bytes) -> int:
        return data.count(b"\n")


class FileSink:
    """A binary file of the program's own. A full disk does not disturb the program either."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.dropped = 0

    def begin(self, header: bytes) -> None:
        self.put(header)

    def put(self, line: bytes) -> None:
        try:
            self._file.write(line)
        except OSError:
            self.dropped += 1

    def unbroken(self) -> bool:
        return True

    def flush(self, timeout: float) -> bool:  # noqa: ARG002 - every sink has it
        try:
            self._file.flush()
        except OSError:
            return False
        return True

    def finish(self, timeout: float) -> bool:
        return self.flush(timeout)
