"""Act as the peers of a client in tests: silent peers, from which tests read what a client sends, and a peer that
answers according to clients/PROTOCOL.md.
"""

from __future__ import annotations

import json
import selectors
import socket
import ssl
import struct
import threading
import time
from collections import defaultdict

import trustme

from clients.python.tests.reader import Metadata, packets


def until(condition, seconds=60.0):
    """Wait for a condition. Fail if it does not become true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


class Authority:
    """Signs certificates, with all files in `directory`, and provides the TLS settings that servers and clients need to
    trust these certificates."""

    def __init__(self, directory):
        self.directory = directory
        self.authority = trustme.CA()
        self.file = directory / "authority.pem"
        self.authority.cert_pem.write_to_path(self.file)

    def issue(self, name, *hosts, **options):
        """Return the paths of a certificate and of its key."""
        made = self.authority.issue_cert(*hosts, **options)
        certificate, key = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        made.private_key_pem.write_to_path(key)
        certificate.write_bytes(b"".join(pem.bytes() for pem in made.cert_chain_pems))
        return certificate, key

    def server(self, *hosts, clients=None, **options):
        """Return the TLS context of a server at these hosts.

        `clients` is the authority that signs its clients' certificates.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue("server", *(hosts or ["127.0.0.1"]), **options))
        if clients:
            context.load_verify_locations(clients.file)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


class UdpCollector:
    def __init__(self, port=0):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**22)
        self.socket.bind(("127.0.0.1", port))
        self.socket.settimeout(20)
        self.address = f"udp://127.0.0.1:{self.socket.getsockname()[1]}"

    def receive(self):
        """Return the next datagram."""
        return self.socket.recv(65536)

    def waiting(self):
        """Return all datagrams that have arrived."""
        datagrams = []
        self.socket.settimeout(0)
        try:
            while True:
                datagrams.append(self.socket.recv(65536))
        except BlockingIOError:
            return datagrams
        finally:
            self.socket.settimeout(20)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


class TcpCollector:
    """Accepts one connection after the other. `sessions` has, for each connection, the received bytes."""

    def __init__(self, port=0, receive_buffer=None):
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if receive_buffer:
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.listener.bind(("127.0.0.1", port))
        self.listener.listen()
        self.port = self.listener.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.sessions = []
        self.reading = threading.Event()
        self.reading.set()
        self.connection = None
        self.ended = 0
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while True:
            try:
                self.connection, _ = self.listener.accept()
            except OSError:
                return
            received = bytearray()
            self.sessions.append(received)
            with self.connection:
                while self.reading.wait():
                    try:
                        data = self.connection.recv(65536)
                    except OSError:
                        break
                    if not data:
                        break
                    received += data
            self.ended += 1

    def hang_up(self):
        """Shut the open connection down, without a reset."""
        self.connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.reading.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        if self.connection and self.connection.fileno() >= 0:
            self.hang_up()
        self.thread.join(20)
        assert not self.thread.is_alive()


def option(name, fields):
    """Return a metadata packet with a JSON object."""
    body = struct.pack("!H", len(name)) + name.encode() + json.dumps(fields).encode()
    return struct.pack("!II", 0x75D11D4D, 8 + len(body)) + body


class Session:
    """The state of one session in an answering collector.

    The numbers in `stored`, by stream, are durable. The numbers in `heard` are received but not durable: they are lost
    if the collector is killed before its next answer.
    """

    def __init__(self):
        self.stored = defaultdict(set)
        self.heard = defaultdict(list)
        self.announcements = []
        self.reports = []
        self.goodbyes = []
        self.twice = 0

    def commit(self):
        for stream, numbers in self.heard.items():
            for number in numbers:
                self.twice += number in self.stored[stream]
                self.stored[stream].add(number)
        self.heard.clear()

    def answer(self, id_, turn):
        streams, holes = {}, []
        for stream, numbers in self.stored.items():
            following = max(numbers, default=-1) + 1
            missing = sorted(set(range(following)) - numbers)
            while missing and len(holes) < 20:
                first = last = missing.pop(0)
                while missing and missing[0] == last + 1:
                    last = missing.pop(0)
                holes.append([stream, first, last - first + 1])
            # Do not acknowledge events behind the first hole that the answer leaves out.
            streams[str(stream)] = missing[0] if missing else following
        ended = bool(self.goodbyes) and not self.goodbyes[-1]["more"]
        return {
            "session": id_, "turn": turn, "streams": streams, "holes": holes, "goodbye": ended,
        }  # fmt: skip


class Answering:
    """A collector that may be killed and started again on the same address. `sessions` are those of all its runs. The
    session None has the events that came on a connection before any announcement of a session; a client must not send
    such events.

    `lose(number)` returns whether the datagram with this number is lost on its way. With `context`, the TLS context of
    a server, the collector is for `tls`. With `token`, it closes connections that do not send the token first, and
    counts them in `refused`.
    """

    def __init__(
        self, scheme, place=None, *, every=0.02, lose=lambda number: False, context=None, token=None
    ):
        self.scheme = scheme
        self.context = context
        self.token = token
        self.refused = 0
        self.place = place or ("127.0.0.1", 0)
        self.every = every
        self.lose = lose
        self.sessions = defaultdict(Session)
        self.datagrams = 0
        self.mute = False
        self.resets = 0
        """Number of connections that will break when a goodbye arrives on them. The goodbye is lost."""
        self.thread = None

    @property
    def address(self):
        if self.scheme == "unix":
            return f"unix://{self.place}"
        return f"{self.scheme}://{self.place[0]}:{self.place[1]}"

    @property
    def only(self):
        """The only session. Fail if there are several."""
        (session,) = self.sessions.values()
        return session

    def start(self):
        family = socket.AF_UNIX if self.scheme == "unix" else socket.AF_INET
        kind = socket.SOCK_DGRAM if self.scheme == "udp" else socket.SOCK_STREAM
        self.listener = socket.socket(family, kind)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self.scheme == "unix":
            self.place.unlink(missing_ok=True)
            self.listener.bind(str(self.place))
        else:
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**22)
            self.listener.bind(self.place)
            self.place = self.listener.getsockname()
        if self.scheme != "udp":
            self.listener.listen()
        self.listener.settimeout(0)
        self.over = False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        return self

    def kill(self):
        """Reset all connections. All events that no answer has acknowledged are lost."""
        self.over = True
        if self.thread:
            self.thread.join(20)
            assert not self.thread.is_alive()
            self.thread = None

    __enter__ = start

    def __exit__(self, *_):
        self.kill()

    def run(self):
        """Run the collector.

        `peers` has, for each connection or address, the beginning of an incomplete packet, the id of the session, and
        the number (turn) of its last announcement.
        """
        selector = selectors.DefaultSelector()
        selector.register(self.listener, selectors.EVENT_READ)
        peers = {}
        answer_at = time.monotonic() + self.every
        while not self.over:
            for key, _ in selector.select(self.every / 2):
                if key.fileobj is not self.listener:
                    self.read(key.fileobj, peers, selector)
                elif self.scheme == "udp":
                    self.read_datagrams(peers)
                elif connection := self.accept():
                    peers[connection] = [b"", None, 0]
                    selector.register(connection, selectors.EVENT_READ)
            if time.monotonic() >= answer_at:
                answer_at = time.monotonic() + self.every
                self.answer(peers)
        for connection in peers:
            if self.scheme != "udp":
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                connection.close()
        self.listener.close()
        for session in self.sessions.values():
            session.heard.clear()

    def accept(self):
        """Return the next connection after its handshake and token; None if either fails."""
        connection, _ = self.listener.accept()
        connection.settimeout(5)
        try:
            if self.context:
                connection = self.context.wrap_socket(connection, server_side=True)
            for byte in b"tailrace-token %s\n" % self.token if self.token else b"":
                if connection.recv(1) != bytes([byte]):
                    raise ConnectionRefusedError
        except OSError:
            self.refused += 1
            connection.close()
            return None
        connection.settimeout(0)
        return connection

    def read(self, connection, peers, selector):
        data, over = peers[connection][0], True
        try:
            while piece := connection.recv(2**20):
                data += piece
                if not (self.context and connection.pending()):
                    over = False
                    break
        except (ssl.SSLWantReadError, BlockingIOError):
            over = False
        except OSError:
            pass
        at = 0
        while at + 8 <= len(data) and at + int.from_bytes(data[at + 4 : at + 8], "big") <= len(
            data
        ):
            at += int.from_bytes(data[at + 4 : at + 8], "big")
        peers[connection][0] = data[at:]
        if self.resets and b"tailrace.goodbye" in data:
            self.resets -= 1
            over = True
        else:
            self.take(peers[connection], data[:at])
        if over:
            selector.unregister(connection)
            connection.close()
            del peers[connection]

    def read_datagrams(self, peers):
        try:
            while True:
                data, peer = self.listener.recvfrom(65536)
                self.datagrams += 1
                if not self.lose(self.datagrams):
                    self.take(peers.setdefault(peer, [b"", None, 0]), data)
        except OSError:
            return

    def take(self, peer, data):
        for packet in packets(data):
            if isinstance(packet, Metadata):
                self.take_metadata(peer, packet)
            elif peer[1] or self.scheme != "udp":
                self.sessions[peer[1]].heard[packet.stream].append(packet.counter)

    def take_metadata(self, peer, packet):
        fields = {} if packet.name == "epoch" else json.loads(packet.option)
        if packet.name == "tailrace.session":
            peer[1], peer[2] = fields["session"], fields["turn"]
            self.sessions[peer[1]].announcements.append(fields)
        elif packet.name == "tailrace.report":
            self.sessions[peer[1]].reports.append(fields)
        elif packet.name == "tailrace.goodbye":
            self.sessions[peer[1]].goodbyes.append(fields)

    def answer(self, peers):
        for session in self.sessions.values():
            session.commit()
        for connection, (_, id_, turn) in list(peers.items()):
            if id_ and not self.mute:
                data = option("tailrace.ack", self.sessions[id_].answer(id_, turn))
                try:
                    if self.scheme == "udp":
                        self.listener.sendto(data, connection)
                    else:
                        connection.send(data)
                except OSError:
                    pass
