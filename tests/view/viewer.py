"""Run `tailrace view` as a process, and send requests to it."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
from contextlib import closing
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.program import COMMAND, start


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Answer:
    def __init__(self, answer):
        self.status = answer.status
        self.headers = answer.headers
        self.body = answer.read()

    @property
    def json(self):
        return json.loads(self.body)


class Viewer:
    """A running viewer. `ask` adds the token to a request; `send` adds nothing."""

    def __init__(self, *arguments, **options):
        self._process = start(
            [*COMMAND, "view", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **options,
        )
        self.url = self._process.stdout.readline().strip()
        if not self.url.startswith(("http://", "unix:")):
            raise AssertionError(self.url + self._process.communicate()[0])
        parts = urlsplit(self.url)
        self.host, self.port, self.path = parts.hostname, parts.port, parts.path
        self.token = parse_qs(parts.query).get("token", [None])[0]

    @property
    def pid(self):
        return self._process.pid

    def connect(self):
        if self.port is None:
            return UnixConnection(self.path)
        return http.client.HTTPConnection(self.host, self.port, timeout=60)

    def send(self, method, path, headers=(), body=None):
        with closing(self.connect()) as connection:
            connection.request(method, path, body, dict(headers))
            return Answer(connection.getresponse())

    def ask(self, path, body=None, method=None, **parameters):
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        if self.token is None:
            headers["Origin"] = "http://localhost"
        query = urlencode({k.rstrip("_"): v for k, v in parameters.items()}, doseq=True)
        where = f"/api/v1/{path}" + (f"?{query}" if query else "")
        data = None if body is None else json.dumps(body)
        return self.send(method or ("GET" if body is None else "POST"), where, headers, data)

    def get(self, path, **parameters):
        """Return the object in the answer. Fail if there is none."""
        answer = self.ask(path, **parameters)
        assert answer.status == 200, answer.body
        return answer.json

    def news(self):
        """Yield the messages of `live`, one after the other."""
        headers = {"Authorization": f"Bearer {self.token}"}
        with closing(self.connect()) as connection:
            connection.request("GET", "/api/v1/live", headers=headers)
            with closing(connection.getresponse()) as answer:
                for line in answer:
                    if line.startswith(b"data: "):
                        yield json.loads(line[6:])

    def line(self):
        """Wait for the next line that the viewer prints."""
        return self._process.stdout.readline()

    def end(self, number=signal.SIGTERM):
        """End the viewer. Return its exit code and what it printed."""
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            printed, _ = self._process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        return self._process.returncode, printed
