"""Documents beside the streams: each is read once when it changes, however many streams share it."""

from __future__ import annotations

import errno
import os
import posixpath
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from zlib_ng.zlib_ng import crc32

from tailrace.decoding.contract import Files
from tailrace.model.spelling import spelled
from tailrace.sources.source import FileIntake
from tailrace.sources.tail.roots import Roots

if TYPE_CHECKING:
    from tailrace.sources.tail.handoff import Handoff

CACHED, CACHED_BYTES = 16, 16 * 2**20
"""Number and bytes of the documents whose content is kept. Streams that begin together share
documents. The document read last is kept whatever its size."""

Signature = tuple[int, int, int, int]


class _Document:
    """One document, and the streams that it belongs to."""

    def __init__(self) -> None:
        self.signature: Signature | None = None
        self.crc: int | None = None
        """CRC-32 of the content last read; None if it was never read."""
        self.settled = False
        """Whether it was read again after it came to rest, because its times may be too coarse to
        tell."""
        self.readers: dict[Handoff, str] = {}
        """Its streams, each with the name that the stream has for it."""


class DocumentWatch:
    """The documents of one source. It raises nothing: it calls `failed` with the name of an error,
    and tries again."""

    def __init__(
        self, files: Files, roots: Roots, intake: FileIntake, failed: Callable[[str], None]
    ) -> None:
        self._files = files
        self._roots = roots
        self._intake = intake
        self._failed = failed
        self._documents: dict[str, _Document] = {}
        self._of: dict[Handoff, list[str]] = {}
        self._cache: OrderedDict[str, bytes] = OrderedDict()

    def __len__(self) -> int:
        return len(self._documents)

    def follow(self, handoff: Handoff, path: str) -> None:
        """Hand on the documents of the stream at this path, now and when they change."""
        self.forget(handoff)
        names = self._files.documents(path)
        if not names:
            return
        places = self._of[handoff] = []
        for name in names:
            place = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
            self._documents.setdefault(place, _Document()).readers[handoff] = spelled(name)
            places.append(place)
        self.look(handoff)

    def forget(self, handoff: Handoff) -> None:
        for place in self._of.pop(handoff, ()):
            document = self._documents[place]
            del document.readers[handoff]
            if not document.readers:
                del self._documents[place]
                self._cache.pop(place, None)

    def look(self, handoff: Handoff) -> None:
        """Hand on what is new in the documents of one stream. A changed document goes to its other
        streams, too."""
        for place in self._of.get(handoff, ()):
            document = self._documents[place]
            changed = self._examine(place, document)
            self._send(place, document, list(document.readers) if changed else [handoff])

    def look_at_all(self) -> Iterator[None]:
        """Hand on what has changed. Yield after each document, to let other tasks run."""
        for place in list(self._documents):
            document = self._documents.get(place)
            if document is not None and self._examine(place, document):
                self._send(place, document, list(document.readers))
            yield

    def _examine(self, place: str, document: _Document) -> bool:
        """Read a document that may have changed; return whether its content has."""
        try:
            found = self._roots.system.stat(place)
        except OSError as error:
            self._fails(error)
            return False
        signature = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        rests = signature == document.signature
        if rests and document.settled:
            return False
        before = document.crc
        if self._read(place, document) is None:
            return False
        document.signature, document.settled = signature, rests
        return document.crc != before

    def _send(self, place: str, document: _Document, handoffs: list[Handoff]) -> None:
        handoffs = [s for s in handoffs if s.sent.get(document.readers[s]) != document.crc]
        if document.crc is None or not handoffs:
            return
        data = self._cache.get(place)
        if data is None and (data := self._read(place, document)) is None:
            return
        for handoff in handoffs:
            name = document.readers[handoff]
            if handoff.number is not None:
                handoff.sent[name] = document.crc
                self._intake.document(handoff.number, name, data)

    def _read(self, place: str, document: _Document) -> bytes | None:
        """Return the content of a document as it is now, None if it cannot be read."""
        try:
            with os.fdopen(self._roots.open(place), "rb") as file:
                data = file.read(self._files.document_max + 1)
        except OSError as error:
            self._fails(error)
            return None
        if len(data) > self._files.document_max:
            self._failed("document_max")
            return None
        document.crc = crc32(data)
        self._cache[place] = data
        self._cache.move_to_end(place)
        while len(self._cache) > CACHED or (
            len(self._cache) > 1 and sum(map(len, self._cache.values())) > CACHED_BYTES
        ):
            self._cache.popitem(last=False)
        return data

    def _fails(self, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            self._failed(errno.errorcode.get(error.errno or 0, "unknown"))
