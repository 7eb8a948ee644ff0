"""Turn ovni records back into streams, byte for byte, and into their metadata files and the table of clock offsets.

The table gets the lines of the hosts whose streams are written. With `repair`, the encoder leaves out streams without
events, and events that ovni's tools refuse, and writes missing ends of spans and threads."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from tailrace.decoding.formats.ovni.document import PROCESS
from tailrace.decoding.formats.ovni.encoding.closing import OpenStream
from tailrace.decoding.formats.ovni.encoding.event_bytes import event_bytes, said
from tailrace.decoding.formats.ovni.encoding.metadata import Loom, amended, ovni_of
from tailrace.decoding.formats.ovni.files import FILES, read_path
from tailrace.decoding.formats.ovni.frame import ORDERS
from tailrace.model.record import Kind, Record

HEADING = "rank       hostname             offset_median        offset_mean          offset_std          \n"
"""The heading of the table of clock offsets, as ovnisync writes it."""

COLUMNS = len(HEADING.split())

REFUSED = frozenset({"bad_payload", "clock_back", "duplicate", "stale_tail", "unknown_event"})
"""Flaws of events that ovni's tools refuse."""

_read = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_HEADERS = {order: header for header, order in ORDERS.items()}


class TraceFacts(msgspec.Struct):
    """The facts that the encoders of one trace's streams share."""

    lines: dict[str, str] = {}  # Lines of the table of clock offsets, by host.
    looms: dict[str, Loom] = {}  # CPUs of the looms, by name.


class OvniEncoder:
    """Encodes the records of one thread as an ovni stream, and its metadata as documents."""

    def __init__(self, repair: bool) -> None:
        self._counts: Counter[str] = Counter()
        self._repair = repair
        self._order = "<"
        self._path = ""
        self._place = read_path("")
        self._trace = TraceFacts()
        self._loom = Loom()
        # The JSON texts of the metadata documents: under "" the thread's document, under `PROCESS` the process's.
        self._texts: dict[str, str] = {}
        self._headed = False
        self._left_out = False
        self._stream = OpenStream(self._counts)

    @property
    def added(self) -> dict[str, int]:
        return dict(self._counts)

    def begin(self, path: str, run: dict[str, Any]) -> None:
        self._path = path
        self._place = read_path(path)
        self._trace = run.setdefault("ovni", self._trace)
        name = self._place.stream.partition("/")[0]
        self._loom = self._trace.looms.setdefault(name, Loom())

    def encode(self, record: Record, *, following: Record | None) -> bytes | None:  # noqa: ARG002 - all events are alike
        if record.kind == Kind.SESSION:
            return self._session(record)
        half = said(record)
        if half is None:
            return b""
        if self._repair and half.flaw in REFUSED:
            return None
        before = self._stream.ends_before(record, half, self._order) if self._repair else b""
        if before is None:
            return None
        data = event_bytes(record, self._stream.whole(half, record.id), self._order)
        self._stream.take(record, half)
        self._loom.use(half.members.get("cpu", -1))
        return (self._header() if self._repair else b"") + before + data

    def close(self) -> bytes | None:
        if not self._repair:
            return b""
        self._left_out = not self._stream.models
        return None if self._left_out else self._stream.close(self._order)

    def documents(self) -> dict[str, bytes]:
        if not FILES.stream(self._path) or self._left_out:
            return {}
        own, *others = FILES.documents(self._path)
        texts = {own if name == "" else name: text for name, text in self._texts.items()}
        if self._repair:
            texts[own] = amended(
                texts.get(own), self._place, self._loom, self._stream.models, self._counts
            )
        found = {name: msgspec.json.format(text, indent=4).encode() for name, text in texts.items()}
        if self._trace.lines:
            lines = sorted(self._trace.lines.values(), key=_rank)
            found[others[-1]] = (HEADING + "".join(f"{line}\n" for line in lines)).encode()
        return found

    def _session(self, record: Record) -> bytes:
        """Store what a session record states about the stream. Return the bytes of a stream header."""
        about = _read(record.attributes or "{}")
        if record.name == "header":
            self._order = ">" if "byte_order" in about else "<"
            return self._header()
        if record.name == "metadata" and record.flaw != "bad_metadata":
            text = str(about["producer"], "utf-8")
            own = "document" not in about
            self._texts["" if own else PROCESS] = text
            if own:
                self._loom.declare(ovni_of(text).get("loom_cpus"))
        elif record.name == "clock_offset":
            mine = [msgspec.json.decode(about["line"])] if "line" in about else []
            for line in mine or msgspec.json.decode(about.get("lines", b"[]")):
                columns = line.split()
                # The file of clock offsets may have no line for this host. The session record then has lines of other
                # hosts, and the last of these lines may be cut off.
                if len(columns) == COLUMNS:
                    self._trace.lines[columns[1]] = line
        return b""

    def _header(self) -> bytes:
        """Return the stream header once. With `repair`, a stream whose header was damaged gets a header, too."""
        if self._headed:
            return b""
        self._headed = True
        return _HEADERS[self._order]


def _rank(line: str) -> tuple[int, str, str]:
    """Return the sort key of a line of the table of clock offsets: the rank, then the line. A rank may have too many
    digits for `int`."""
    rank = line.split(maxsplit=1)[0]
    digits = rank.lstrip("0") if rank.isdecimal() else ""
    return (len(digits), digits, line)
