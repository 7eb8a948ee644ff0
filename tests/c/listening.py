"""Act as peers of a C client, and return what they received as packets."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.decoding.test_heph import decode, read_attributes


class Heard(NamedTuple):
    """The decoded content of a byte stream, or of datagrams in a row."""

    events: list
    metadata: list[tuple[str, dict]]
    """The metadata packets of the client in their order, without epochs."""

    @property
    def sessions(self) -> list[str]:
        """The announcements in their order, without repetitions."""
        ids = [value["session"] for name, value in self.metadata if name == "tailrace.session"]
        return list(dict.fromkeys(ids))

    def said(self, name: str) -> list[dict]:
        return [value for option, value in self.metadata if option == name]

    @property
    def final(self) -> dict[str, int]:
        """The streams in the goodbyes."""
        return {k: v for bye in self.said("tailrace.goodbye") for k, v in bye["streams"].items()}

    @property
    def ranges(self) -> list[list[int]]:
        return [one for report in self.said("tailrace.report") for one in report["ranges"]]

    def numbers(self) -> dict[str, list[int]]:
        """The numbers of the events of each stream, in order of arrival."""
        found: dict[str, list[int]] = {}
        for event in self.events:
            found.setdefault(event.stream, []).append(event.counter)
        return found

    def check_complete(self, *, unnumbered: int = 0) -> None:
        """Check that everything is accounted for.

        Each number below that in the goodbye belongs to exactly one event, or to one range in a report that came before
        the stream's next event. The number of discarded events is that of the ranges, plus `unnumbered` events outside
        of the session.
        """
        named = {(str(s), first + i) for s, first, n in self.ranges for i in range(n)}
        assert len(named) == sum(count for _, _, count in self.ranges)
        for stream, end in self.final.items():
            seen = self.numbers().get(stream, [])
            holes = {number for name, number in named if name == stream}
            assert sorted([*seen, *holes]) == list(range(end)), stream
        assert set(self.numbers()) <= set(self.final)
        discarded = self.said("tailrace.goodbye")[-1]["discarded"]
        assert sum(discarded.values()) == len(named) + unnumbered


def hear(data: bytes) -> Heard:
    """Check that only whole packets arrived: the decoder finds nothing malformed."""
    records = decode(data)
    assert not [record for record in records if record.kind == "malformed" or record.flaw]
    events = [record for record in records if record.kind in {"span", "counter"}]
    metadata = [
        (record.name, option_of(data[record.offset :], record.size))
        for record in records
        if record.kind == "session" and record.name.startswith("tailrace.")
    ]
    return Heard(events, metadata)


def option_of(packet: bytes, size: int) -> dict:
    length = int.from_bytes(packet[8:10], "big")
    return json.loads(packet[10 + length : size])


def attributes(event) -> list[tuple[str, str, object]]:
    return read_attributes(event.attributes)


class Udp:
    """A datagram socket. It is read when a test asks, or beside the test."""

    scheme = "udp"

    def __init__(self, port: int = 0, *, room: int = 1 << 23) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        self.socket.bind(("127.0.0.1", port))
        self.datagrams: list[bytes] = []
        self._senders: list[tuple[str, int]] = []
        self._stop = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return self.socket.getsockname()[1]

    @property
    def address(self) -> str:
        return f"udp://127.0.0.1:{self.port}"

    def _read(self) -> None:
        self.socket.settimeout(0.05)
        while True:
            try:
                data, sender = self.socket.recvfrom(65536)
            except TimeoutError:
                if self._stop:
                    return
                continue
            self.datagrams.append(data)
            self._senders.append(sender)

    def by_sender(self) -> dict[tuple[str, int], list[bytes]]:
        """Return the datagrams by the address of their sender."""
        found: dict[tuple[str, int], list[bytes]] = {}
        for sender, datagram in zip(self._senders, self.datagrams, strict=True):
            found.setdefault(sender, []).append(datagram)
        return found

    def close(self) -> bytes:
        """Read the remaining datagrams. Return all of them in order of arrival."""
        self._stop = True
        self._thread.join()
        self.socket.close()
        return b"".join(self.datagrams)


class Stream:
    """A listening TCP or unix socket. Its connections are read beside the test, unless the test says `wait`."""

    def __init__(
        self, path: Path | None = None, *, port: int = 0, wait: bool = False, room: int = 0
    ) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
        if room:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(str(path) if path else ("127.0.0.1", port))
        self.socket.listen(64)
        self.may_read = threading.Event()
        if not wait:
            self.may_read.set()
        self._stop = False
        self.received: list[bytearray] = []
        """The received bytes, by connection."""
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    @property
    def port(self) -> int:
        return self.socket.getsockname()[1]

    @property
    def address(self) -> str:
        return f"unix://{self.path}" if self.path else f"tcp://127.0.0.1:{self.port}"

    def _accept(self) -> None:
        self.socket.settimeout(0.05)
        while True:
            try:
                connection, _ = self.socket.accept()
            except TimeoutError:
                if self._stop:
                    return
                continue
            connection.settimeout(None)
            self._connections.append(connection)
            self.received.append(bytearray())
            reader = threading.Thread(
                target=self._read, args=(connection, self.received[-1]), daemon=True
            )
            reader.start()
            self._threads.append(reader)

    def _read(self, connection: socket.socket, into: bytearray) -> None:
        self.may_read.wait()
        try:
            while data := connection.recv(1 << 18):
                into += data
            connection.shutdown(socket.SHUT_RDWR)  # Close like a collector that has read everything
        except OSError:
            pass

    def hang_up(self) -> None:
        """Close the listener and every connection, as a collector that ends does."""
        self._end_listening()
        for connection in self._connections:
            with suppress(OSError):  # The connection has ended already
                connection.shutdown(socket.SHUT_RDWR)
        for reader in self._threads:
            reader.join()
        for connection in self._connections:
            connection.close()

    def close(self) -> list[bytes]:
        """Close when the clients have closed. Return what arrived, by connection."""
        self.may_read.set()
        self._end_listening()
        deadline = time.monotonic() + 30
        for reader in self._threads:
            reader.join(max(0, deadline - time.monotonic()))
        for connection in self._connections:
            connection.close()
        return [bytes(data) for data in self.received]

    def _end_listening(self) -> None:
        self._stop = True
        self._acceptor.join()
        self.socket.close()
