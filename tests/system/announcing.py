"""Act as a client that announces its session (clients/PROTOCOL.md), with nothing but sockets and bytes."""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from urllib.parse import unquote, urlsplit

from tailrace.clock import SystemClock
from tests.ingest.log import METADATA_MAGIC, heph_epoch, heph_event

ACK = b"tailrace.ack"


def option(name, value):
    """Return a Heph metadata packet."""
    text = json.dumps(value).encode()
    return struct.pack(">IIH", METADATA_MAGIC, 10 + len(name) + len(text), len(name)) + name + text


def connected(collector, source, *, receive_buffer=None):
    """Return a socket that is connected to one of a collector's sources."""
    address = collector.ports["sources"][source]
    if address.startswith("unix://"):
        sock, place = socket.socket(socket.AF_UNIX), unquote(urlsplit(address).path)
    else:
        is_udp = collector.status()["sources"][source]["type"] == "udp"
        kind = socket.SOCK_DGRAM if is_udp else socket.SOCK_STREAM
        sock, place = socket.socket(socket.AF_INET, kind), collector.address(source)
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.connect(place)
    return sock


class Client:
    """One session on one connection.

    `told` has the last answer about each stream, and `answers` all answers. `sent` and `heard` are the bytes in both
    directions.
    """

    def __init__(self, collector, source, *, acknowledge=True, receive_buffer=None):
        self.session = os.urandom(16).hex()
        self.epoch = SystemClock().wall_ns()
        self.acknowledge = acknowledge
        self.turn = 0
        self.next = {}
        self.told = {}
        self.answers = []
        self.sent = self.heard = 0
        self.sock = connected(collector, source, receive_buffer=receive_buffer)
        self._rest = b""

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.sock.close()

    def send(self, data):
        """Send bytes; on a datagram socket, as one datagram."""
        self.sock.settimeout(30)
        self.sock.sendall(data)
        self.sent += len(data)

    def announce(self, **more):
        about = {"session": self.session, "turn": self.turn, "acknowledge": self.acknowledge} | more
        self.send(heph_epoch(self.epoch) + option(b"tailrace.session", about))
        self.turn += 1

    def emit(self, count, stream=1):
        first = self.next.get(stream, 0)
        self.next[stream] = first + count
        self.send(b"".join(heph_event(stream, n) for n in range(first, first + count)))

    def emit_each(self, streams):
        """Emit one event on each of these streams."""
        self.send(b"".join(heph_event(stream, self.next.get(stream, 0)) for stream in streams))
        self.next |= {stream: self.next.get(stream, 0) + 1 for stream in streams}

    def goodbye(self):
        self.send(option(b"tailrace.goodbye", {"streams": self.next}))

    def hear(self, seconds=0.0):
        """Read the answers that are there or arrive within some time. Return whether there were any."""
        before = len(self.answers)
        self.sock.settimeout(seconds or 0.001)
        try:
            while data := self.sock.recv(65536):
                self.heard += len(data)
                self._take(data)
                if len(self.answers) > before:
                    break
        except (TimeoutError, ConnectionError):
            pass
        return len(self.answers) > before

    def hear_until(self, condition, what):
        deadline = time.monotonic() + 180
        while not condition():
            self.hear(0.1)
            assert time.monotonic() < deadline, f"waited for {what}; told {self.told}"

    def hear_all(self):
        """Read answers until the collector is silent: until some rounds pass without an answer."""
        while self.hear(0.5):
            pass

    def _take(self, data):
        data = self._rest + data
        while len(data) >= 10:
            magic, size, name = struct.unpack_from(">IIH", data)
            assert magic == METADATA_MAGIC
            assert size <= 1200
            if len(data) < size:
                break
            assert data[10 : 10 + name] == ACK
            self._answer(json.loads(data[10 + name : size]))
            data = data[size:]
        self._rest = data

    def _answer(self, answer):
        assert answer["session"] == self.session
        self.answers.append(answer)
        for stream, number in answer.get("streams", {}).items():
            assert number >= self.told.get(int(stream), 0), "what is durable stays so"
            assert number <= self.next.get(int(stream), 0), "what was never sent is not durable"
            self.told[int(stream)] = number
