"""Just enough of S3 for the table: a bucket in memory, over HTTP, that can misbehave on purpose.

Objects with ranges, conditional PUT, listing in pages and with `start-after`, delete one or many, uploads in
parts. No signatures.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit
from urllib.request import Request, urlopen
from xml.sax.saxutils import escape, unescape

from tailrace.clock import SystemClock

CONTROL = "-misbehave"

_CLOCK = SystemClock()


class S3Server(ThreadingHTTPServer):
    """The bucket, and how it misbehaves: the answers to the next `drop` PUTs of a version are withheld (the client
    cannot know that they were stored), `full` refuses every PUT, and reads of data files take `delay` seconds.
    """

    daemon_threads = True
    request_queue_size = 1024
    """Maximum number of connections that wait to be accepted.

    A table's clients open hundreds at once. With five, the default, the kernel would drop most of them, and a client
    waits seconds before it tries again.
    """

    def __init__(self, handler=None, address=("127.0.0.1", 0), objects=None):
        super().__init__(address, handler or Handler)
        self.objects = {} if objects is None else objects
        self.times = {}
        """When each object was written, according to this server (Unix ns)."""
        self.uploads = {}
        self.lock = threading.Lock()
        self.drop = 0
        self.full = False
        self.delay = 0.0


class RunningS3:
    """The server in a process of its own, because the library holds the GIL in some calls."""

    def __enter__(self):
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdout=subprocess.PIPE, text=True
        )
        self.url = self._process.stdout.readline().strip()
        return self

    def __exit__(self, *exc_info):
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    @property
    def options(self):
        """Return the storage options for a client."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
        }

    def upload(self, directory, url):
        """Store the files of a directory as objects below a URL `s3://…`."""
        for path in filter(Path.is_file, Path(directory).rglob("*")):
            key = quote(f"{url.removeprefix('s3://')}/{path.relative_to(directory)}")
            request = Request(f"{self.url}/{key}", path.read_bytes(), method="PUT")  # noqa: S310 - our own http address
            with urlopen(request):  # noqa: S310 - likewise
                pass

    def misbehave(self, *, drop=0, full=False, delay=0.0):
        query = urlencode({"drop": drop, "full": int(full), "delay": delay})
        with urlopen(f"{self.url}/{CONTROL}?{query}"):  # noqa: S310 - our own http address
            pass


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args):
        """Print nothing on standard error."""

    def parse_request(self):
        if not super().parse_request():
            return False
        url = urlsplit(self.path)
        _, self.bucket, *rest = url.path.split("/", 2)
        self.key = unquote(rest[0]) if rest else ""
        self.query = {
            name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()
        }
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return True

    def do_PUT(self):
        server = self.server
        if server.full:
            self._answer(403, b"<Error><Code>QuotaExceeded</Code></Error>")
            return
        if "uploadId" in self.query:
            server.uploads[self.query["uploadId"]][int(self.query["partNumber"])] = self.body
            self._answer(200, b"", ETag=etag(self.body))
            return
        with server.lock:
            if self.headers.get("If-None-Match") == "*" and self.key in server.objects:
                self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
                return
            server.times[self.key] = _CLOCK.wall_ns()
            server.objects[self.key] = self.body
        if server.drop and self.key.endswith(".json"):
            server.drop -= 1
            self.close_connection = True
            return
        self._answer(200, b"", ETag=etag(self.body))

    def do_GET(self):
        if self.bucket == CONTROL:
            self.server.drop = int(self.query["drop"])
            self.server.full = bool(int(self.query["full"]))
            self.server.delay = float(self.query["delay"])
            self._answer(200, b"")
        elif self.key:
            if self.key.endswith(".parquet"):
                time.sleep(self.server.delay)
            self._object(self.objects_to_read().get(self.key))
        else:
            self._list()

    def objects_to_read(self):
        return self.server.objects

    def objects_to_list(self):
        return self.server.objects

    def do_HEAD(self):
        self.do_GET()

    def do_DELETE(self):
        self.server.objects.pop(self.key, None)
        self._answer(204, b"")

    def do_POST(self):
        """Delete many objects, or begin or end an upload in parts."""
        if "uploads" in self.query or "uploadId" in self.query:
            self._upload()
            return
        keys = re.findall(r"<Key>.*?</Key>", self.body.decode())
        for key in keys:
            self.server.objects.pop(unescape(key[5:-6]), None)
        deleted = "".join(f"<Deleted>{key}</Deleted>" for key in keys)
        self._answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    def _upload(self):
        server = self.server
        if "uploads" in self.query:
            with server.lock:
                upload = str(len(server.uploads))
                server.uploads[upload] = {}
            result = "InitiateMultipartUploadResult"
            text = f"<{result}><UploadId>{upload}</UploadId></{result}>"
        else:
            parts = server.uploads[self.query["uploadId"]]
            data = b"".join(parts[number] for number in sorted(parts))
            server.times[self.key] = _CLOCK.wall_ns()
            server.objects[self.key] = data
            result = "CompleteMultipartUploadResult"
            text = f"<{result}><ETag>{escape(etag(data))}</ETag></{result}>"
        self._answer(200, text.encode())

    def _object(self, data):
        if data is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        headers = {"ETag": etag(data), "Last-Modified": self.date_time_string()}
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if asked is None:
            self._answer(200, data, **headers)
            return
        size = len(data)
        begin = int(asked[1]) if asked[1] else max(size - int(asked[2]), 0)
        end = min(int(asked[2]) + 1, size) if asked[1] and asked[2] else size
        headers["Content-Range"] = f"bytes {begin}-{end - 1}/{size}"
        self._answer(206, data[begin:end], **headers)

    def _list(self):
        prefix = self.query.get("prefix", "")
        after = self.query.get("continuation-token") or self.query.get("start-after", "")
        most = int(self.query.get("max-keys", 1000))
        contents, folders, last = [], set(), ""
        for key, data in sorted(self.objects_to_list().items()):
            if not key.startswith(prefix) or key <= after:
                continue
            if len(contents) == most:
                break
            rest = key[len(prefix) :]
            if self.query.get("delimiter") == "/" and "/" in rest:
                folders.add(prefix + rest.split("/")[0] + "/")
                continue
            seconds = self.server.times.get(key, 0) // 10**9
            written = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.000Z"
            contents.append(
                f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size>"
                f"<LastModified>{written}</LastModified><ETag>{escape(etag(data))}</ETag></Contents>"
            )
            last = key
        else:
            last = ""
        common = "".join(
            f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            for folder in sorted(folders)
        )
        further = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if last else ""
        text = (
            f"<ListBucketResult><Name>{self.bucket}</Name><Prefix>{escape(prefix)}</Prefix>"
            f"<IsTruncated>{str(bool(last)).lower()}</IsTruncated>{further}{''.join(contents)}{common}"
            "</ListBucketResult>"
        )
        self._answer(200, text.encode())

    def _answer(self, status, body, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def etag(data):
    return f'"{md5(data, usedforsecurity=False).hexdigest()}"'


if __name__ == "__main__":
    server = S3Server()
    sys.stdout.write(f"http://127.0.0.1:{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()
