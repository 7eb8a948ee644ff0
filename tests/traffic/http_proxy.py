"""Run a proxy between one collector and an object store. It answers as a bad network would, and counts what it did.

    with LossyProxy("http://127.0.0.1:7480", seed=1) as proxy:
        ...  # give the collector proxy.url as its AWS_ENDPOINT_URL
        proxy.misbehave(Chances(lost=0.1))

The collector signs its requests for the proxy's address. The proxy passes the header `Host` on unchanged, so the server
sees what was signed. Each request has a connection of its own to the server.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections import Counter, defaultdict, deque
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding"}

SERVER_SECONDS = 120


class Chances(NamedTuple):
    """The probabilities of faults for a request. Beside any other fault, a request may be delayed.

    - `dropped`: the connection ends before the server has seen the request.
    - `lost`: the connection ends when the server has answered, and nothing of the answer arrives.
    - `cut`: the connection ends in the middle of the answer.
    - `delayed`: the request takes up to `seconds` to the server, and so does its answer.
    - `puts`: the factor by which dropping, losing and cutting are more probable for puts.
    - `reset`: a connection that ends without any answer ends with a reset, as when the network has lost it.
    """

    dropped: float = 0.0
    lost: float = 0.0
    cut: float = 0.0
    delayed: float = 0.0
    seconds: float = 1.0
    puts: float = 1.0
    reset: float = 0.5


CALM = Chances(reset=1.0)


class LossyProxy(ThreadingHTTPServer):
    """`counts` has the number of each fault, `requests` that of requests, and `handed_on` that of answers that arrived
    as a whole.

    While the proxy is `refusing`, it cuts every client off: a partition.
    """

    daemon_threads = True
    request_queue_size = 1024
    """See `S3Server`: no connection is lost except by these probabilities."""

    def __init__(self, url, *, seed):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked = url.removeprefix("http://")
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.refusing = False
        self.versions_pass = threading.Event()
        """While this is not set, versions of the table that are put wait on their way to the server."""
        self.versions_pass.set()
        self.counts = Counter()
        self.withheld = Counter()
        """Number of answers that were lost or cut, by the method and the kind of the requested object."""
        self._chances = CALM
        self._next = defaultdict(deque)
        self._rng = random.Random(seed)
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc_info):
        self.shutdown()
        self._thread.join()
        self.server_close()

    def misbehave(self, chances=CALM):
        self._chances = chances

    def next(self, method, kind, *deeds):
        """Apply these faults to the next requests of a method for a kind of object.

        An empty text lets one request pass.
        """
        self._next[method, kind].extend(deeds)

    def draw(self, method, path):
        """Choose what happens to a request: a fault or none, and how long it is delayed in each direction."""
        with self._lock:
            if chosen := self._next[method, kind_of(path)]:
                return chosen.popleft(), 0.0
            chances, number = self._chances, self._rng.random()
            delay = 0.0
            if self._rng.random() < chances.delayed:
                delay = self._rng.random() * chances.seconds
            for deed in ("dropped", "lost", "cut"):
                number -= getattr(chances, deed) * (chances.puts if method == "PUT" else 1)
                if number < 0:
                    return deed, delay
            return None, delay

    def await_passage(self, method, path):
        """If this is a version and versions may not pass, wait."""
        if not self.versions_pass.is_set() and method == "PUT" and kind_of(path) == "version":
            self.count("held")
            self.versions_pass.wait()

    def resets(self):
        """Return whether a connection that ends without any answer ends with a reset."""
        with self._lock:
            return self._rng.random() < self._chances.reset

    def part(self, size):
        """Return how many of the given number of bytes arrive."""
        with self._lock:
            return self._rng.randrange(1, size)

    def count(self, *deeds):
        with self._lock:
            self.counts.update(deeds)

    def withhold(self, deed, method, path):
        with self._lock:
            self.counts[deed] += 1
            self.withheld[method, kind_of(path)] += 1

    def handle_error(self, request, client_address):
        """Print nothing: clients that are killed end their connections."""


def kind_of(path):
    """Return the kind of an object: a version of the table, a data file, or another."""
    path = path.partition("?")[0]
    if path.endswith(".parquet"):
        return "checkpoint" if "/_delta_log/" in path else "data file"
    return "version" if "/_delta_log/" in path and path.endswith(".json") else "other"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args):
        """Print nothing on standard error."""

    def do_GET(self):
        self._hand_on()

    def do_HEAD(self):
        self._hand_on()

    def do_PUT(self):
        self._hand_on()

    def do_POST(self):
        self._hand_on()

    def do_DELETE(self):
        self._hand_on()

    def _hand_on(self):
        proxy = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if proxy.refusing:
            proxy.count("refused")
            self._end()
            return
        deed, delay = proxy.draw(self.command, self.path)
        proxy.count("requests", *(["delayed"] if delay else []))
        time.sleep(delay)
        proxy.await_passage(self.command, self.path)
        if deed == "dropped":
            proxy.count("dropped")
            self._end(reset=proxy.resets())
            return
        try:
            answer = self._ask(body)
        except (OSError, HTTPException):
            proxy.count("unanswered")
            self._end()
            return
        time.sleep(delay)
        self._answer(answer, "lost" if proxy.refusing else deed)

    def _answer(self, answer, deed):
        proxy = self.server
        if deed == "lost":
            proxy.withhold("lost", self.command, self.path)
            self._end(reset=proxy.resets())
        elif deed == "cut":
            proxy.withhold("cut", self.command, self.path)
            self.wfile.write(answer[: proxy.part(len(answer))])
            self._end(reset=False)
        else:
            proxy.count("handed_on")
            self.wfile.write(answer)

    def _ask(self, body):
        """Send a request to the server. Return its whole answer as bytes."""
        connection = HTTPConnection(self.server.asked, timeout=SERVER_SECONDS)
        try:
            connection.putrequest(
                self.command, self.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in self.headers.items():
                if name.lower() not in HOP_BY_HOP:
                    connection.putheader(name, value)
            connection.endheaders(body or None)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        named = [(n, v) for n, v in answer.getheaders() if n.lower() not in HOP_BY_HOP]
        if not any(name.lower() == "content-length" for name, _ in named) and answer.status != 204:
            named.append(("Content-Length", str(len(data))))
        lines = [f"HTTP/1.1 {answer.status} {answer.reason}", *(f"{n}: {v}" for n, v in named)]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + data

    def _end(self, *, reset=True):
        """End the connection, in order or as a network that has lost it."""
        self.close_connection = True
        if not reset:
            return
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
