"""Run an S3 server that breaks its guarantees on purpose, each in a way that was seen in real servers."""

from __future__ import annotations

import re
import threading
import time
from email.utils import formatdate

from tests.store.s3_server import Handler, S3Server, etag

REFUSED = b"<Error><Code>AccessDenied</Code></Error>"


class Remembered(dict):
    """Objects, with their content at any earlier time."""

    def __init__(self):
        super().__init__()
        self._lock = threading.Lock()
        self._history = []

    def __setitem__(self, key, value):
        with self._lock:
            super().__setitem__(key, value)
            self._history.append((time.monotonic(), key, value))

    def pop(self, key, default=None):
        with self._lock:
            self._history.append((time.monotonic(), key, None))
            return super().pop(key, default)

    def before(self, seconds):
        end = time.monotonic() - seconds
        with self._lock:
            states = {key: value for moment, key, value in self._history if moment <= end}
        return {key: value for key, value in states.items() if value is not None}


class LyingS3:
    """The server, in a thread. `lies` are attributes of `LyingHandler`. With `tls`, a context, it uses TLS."""

    def __init__(self, objects=None, address=("127.0.0.1", 0), *, tls=None, **lies):
        self.objects = Remembered() if objects is None else objects
        handler = type("Lying", (LyingHandler,), {**lies, "asked": []})
        self._server = S3Server(handler, address, self.objects)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.asked = handler.asked
        self.port = self._server.server_port
        self.url = f"http://{address[0]}:{self.port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}
        )

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc_info):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def options(self):
        return {
            "aws_endpoint_url": self.url,
            "aws_allow_http": "true",
            "aws_access_key_id": "id",
            "aws_secret_access_key": "secret",
        }


class LyingHandler(Handler):
    looks_first = False
    """Check whether the key exists, and store it a moment later, even if another writer stores it in between."""
    ignores = False
    """Ignore the condition of a put."""
    replaces = False
    """Refuse a writer, but store its bytes nevertheless."""
    never = False
    """Refuse every conditional put."""
    unknown = 0
    """The status with which conditional puts are refused."""
    read_behind = 0.0
    list_behind = 0.0
    """Reads and lists return objects as they were this number of seconds ago."""
    ahead = 0.0
    """The clock is ahead by this number of seconds."""
    refuses = ()
    """The rights that no client has."""
    error = (403, REFUSED)
    """The answer to a client that lacks a right."""
    keeps = False
    """Answer that keys are deleted, but keep them."""
    cut = 0
    """Keys that are missing in a list that begins after a given key."""
    loses = ""
    """Suffix of a key. The first conditional put of such a key is stored, but gets no answer."""

    def parse_request(self):
        if not super().parse_request():
            return False
        self.right = {"PUT": "put", "POST": "delete"}.get(
            self.command, "get" if self.key else "list"
        )
        self.asked.append((self.right, self.key))
        return True

    def handle(self):
        try:
            super().handle()
        except ConnectionError:
            """A client has gone."""

    def date_time_string(self, timestamp=None):
        return formatdate(time.time() + self.ahead, usegmt=True)  # noqa: TID251 - a server has a clock

    def do_PUT(self):  # noqa: N802 - its library's name
        conditional = self.headers.get("If-None-Match") == "*"
        if "put" in self.refuses:
            self._answer(*self.error)
        elif conditional and self.unknown:
            self._answer(self.unknown, b"<Error><Code>NotImplemented</Code></Error>")
        elif conditional and (self.never or self._exists()):
            if self.replaces:
                self.server.objects[self.key] = self.body
            self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        elif conditional and self.loses and self.key.endswith(self.loses):
            self.server.objects[self.key] = self.body
            self.close_connection = True
        elif self.looks_first or self.ignores or not conditional:
            self.server.objects[self.key] = self.body
            self._answer(200, b"", ETag=etag(self.body))
        else:
            super().do_PUT()

    def _exists(self):
        exists = self.key in self.server.objects
        if self.looks_first:
            time.sleep(0.01)
        return exists and not self.ignores

    def do_GET(self):  # noqa: N802 - its library's name
        if self.right in self.refuses:
            self._answer(*self.error)
        else:
            super().do_GET()

    def do_POST(self):  # noqa: N802 - its library's name
        keys = re.findall("<Key>.*?</Key>", self.body.decode())
        if "delete" not in self.refuses and not self.keeps:
            super().do_POST()
        elif self.keeps or self.error == (403, REFUSED):
            # Each key has its own answer.
            code = "<Code>AccessDenied</Code><Message>No.</Message>"
            of_key = "<Deleted>{}</Deleted>" if self.keeps else f"<Error>{{}}{code}</Error>"
            result = "".join(of_key.format(key) for key in keys)
            self._answer(200, f"<DeleteResult>{result}</DeleteResult>".encode())
        else:
            self._answer(*self.error)

    def objects_to_read(self):
        return self.server.objects.before(self.read_behind)

    def objects_to_list(self):
        found = self.server.objects.before(self.list_behind)
        behind = self.query.get("start-after")
        for key in sorted(key for key in found if behind and key > behind)[: self.cut]:
            del found[key]
        return found
