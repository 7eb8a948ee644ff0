"""Hold what all tests of an endpoint share: the addresses that answer, and a folder for their keys."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from tailrace.clock import Clock
from tailrace.doctor.object_store.client import Client, ListedPage
from tailrace.doctor.object_store.place import StorePlace

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
