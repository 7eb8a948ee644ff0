"""Requests to the addresses of an endpoint, each over one connection, and a folder for their keys. An answer that never came is an
answer, too.
"""

from __future__ import annotations

import html
import http.client
import re
import secrets
import socket
import ssl
from collections.abc import Iterator
from typing import NamedTuple

from tailrace.clock import Clock
from tailrace.doctor.object_store.place import StorePlace
from tailrace.doctor.object_store.signing import StoreRequest, sign

TIMEOUT = 10
"""Seconds for a connection, and for each wait of an answer."""

ANSWER_MAX = 4 * 2**20
"""Bytes of an answer that are read; a page of 1,000 keys has less."""

_CODE = re.compile(rb"<Code>([^<]*)</Code>")
_KEY = re.compile(rb"<Key>([^<]*)</Key>")
_TOKEN = re.compile(rb"<NextContinuationToken>([^<]*)</NextContinuationToken>")


class EndpointAnswer(NamedTuple):
    """The outcome of a request. The status is 0 if nothing came, and then the server may have obeyed or not."""

    status: int
    body: bytes
    date: str = ""
    """The server's time, as in its header `Date`."""
    cause: str = ""
    """Why nothing came."""

    @property
    def done(self) -> bool:
        return 200 <= self.status < 300

    @property
    def exists_already(self) -> bool:
        """Return whether the server refused because of `If-None-Match`. S3 says 409 if two come at once."""
        return self.status in {409, 412}

    @property
    def is_missing(self) -> bool:
        """Return whether there is no object under the key."""
        return self.status == 404 and self.code != "NoSuchBucket"

    @property
    def code(self) -> str:
        """Return the server's word for an error, or nothing."""
        found = _CODE.search(self.body)
        return _text(found[1]) if found and not self.done else ""

    def __str__(self) -> str:
        return f"{self.status} {self.code}".rstrip() if self.status else f"no answer: {self.cause}"


class ListedPage(NamedTuple):
    """A page of a listing, and the token of the next one, if there is one."""

    answer: EndpointAnswer
    keys: list[str]
    token: str


class Client:
    """Not for several threads at once. Keys are paths in the bucket."""

    def __init__(self, place: StorePlace, address: str, clock: Clock) -> None:
        self.address = address
        self._place = place
        self._clock = clock
        self._connection = _Connection(place, address)

    def put(self, key: str, body: bytes, *, create: bool = False) -> EndpointAnswer:
        """Store an object; with `create` only if there is none under this key."""
        return self._ask("PUT", key, body=body, headers={"if-none-match": "*"} if create else {})

    def get(self, key: str) -> EndpointAnswer:
        return self._ask("GET", key)

    def delete(self, key: str) -> EndpointAnswer:
        return self._ask("DELETE", key)

    def page(self, prefix: str, *, most: int, token: str = "") -> ListedPage:
        query = {"list-type": "2", "prefix": prefix, "max-keys": str(most)}
        answer = self._ask(
            "GET", "", query=query | ({"continuation-token": token} if token else {})
        )
        following = _TOKEN.search(answer.body)
        return ListedPage(
            answer,
            [_text(key) for key in _KEY.findall(answer.body)],
            _text(following[1]) if answer.done and following else "",
        )

    def close(self) -> None:
        self._connection.close()

    def _ask(
        self,
        method: str,
        key: str,
        *,
        query: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> EndpointAnswer:
        place = self._place
        path = f"{place.base}/{key}" if key else place.base or "/"
        request = StoreRequest(
            method, path, query or {}, {"host": place.authority, **(headers or {})}, body
        )
        sent = dict(request.headers)
        if place.keys is not None:
            sent = sign(request, place.keys, place.region, self._clock.wall_ns())
        try:
            self._connection.request(method, request.target, body or None, sent)
            with self._connection.getresponse() as response:
                content = response.read(ANSWER_MAX)
                answer = EndpointAnswer(response.status, content, response.getheader("Date") or "")
                whole = response.isclosed()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            return EndpointAnswer(0, b"", cause=_cause(error))
        if not whole:
            self._connection.close()
        return answer


class _Connection(http.client.HTTPConnection):
    """Goes to one address, whichever others the endpoint's name has. The certificate is the name's."""

    def __init__(self, place: StorePlace, address: str) -> None:
        super().__init__(place.host, place.port, timeout=TIMEOUT)
        self._address = address
        self._tls = ssl.create_default_context() if place.secure else None
        if self._tls is not None and place.any_certificate:
            self._tls.check_hostname = False
            self._tls.verify_mode = ssl.CERT_NONE

    def connect(self) -> None:
        sock = socket.create_connection((self._address, self.port), TIMEOUT)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = self._tls.wrap_socket(sock, server_hostname=self.host) if self._tls else sock


def _cause(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate: {error.verify_message}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__


def _text(data: bytes) -> str:
    return html.unescape(data.decode(errors="replace"))


PAGE_KEYS = 1000
"""The most keys that S3 puts into a page of a listing."""

PAGES_MAX = 1000
"""A listing that has more pages is not read further: its server goes round in circles."""


class EndpointProbe:
    """One examination. Every key that a test may have left is in `written`."""

    def __init__(self, place: StorePlace, addresses: list[str], clock: Clock) -> None:
        self.place = place
        self.addresses = addresses
        self.clock = clock
        self.folder = f"{place.prefix}doctor-{secrets.token_hex(8)}/"
        self.clients = self.connect()
        self.written: set[str] = set()

    def connect(self) -> list[Client]:
        """Return a new client for each address."""
        return [Client(self.place, address, self.clock) for address in self.addresses]

    def key(self, name: str) -> str:
        """Return a key that will be written, and remember to delete it."""
        key = self.folder + name
        self.written.add(key)
        return key

    def url(self, key: str) -> str:
        """Return the URL of a key."""
        return f"{self.place.url}/{key.removeprefix(self.place.prefix)}"


def pages(client: Client, prefix: str, *, most: int = PAGE_KEYS) -> Iterator[ListedPage]:
    """Yield the pages of a listing, in pages of `most` keys. The last one tells of an error, if there is one."""
    token = ""
    for _ in range(PAGES_MAX):
        page = client.page(prefix, most=most, token=token)
        yield page
        token = page.token
        if not token:
            return
