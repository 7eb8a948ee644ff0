"""Recognise foreign content by its first bytes: content of a known type that no decoder reads, such as an archive.

An import leaves out a foreign file. In a followed file, a connection or a datagram, all bytes become malformed, with
the kind of content as the reason."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterable
from itertools import takewhile
from struct import Struct

from tailrace.decoding.contract import Decoder, Format
from tailrace.decoding.formats import OWN
from tailrace.decoding.formats.heph.packets import (
    EVENT,
    EVENT_MIN,
    MAGIC_SIZE,
    MAGICS,
    METADATA,
    METADATA_MIN,
)
from tailrace.decoding.json_object import read_object
from tailrace.decoding.lines import BYTE_ORDER_MARK, CTRL_Z, WHITE
from tailrace.model.record import Kind, Record, malformed

HEAD = 4096
"""Number of first bytes that `foreign` needs to recognise all kinds of foreign content."""

OLD_HEPH, WIDE, CR_LINES = "old_heph", "utf_16_or_32", "cr_lines"
FOREIGN = {
    WIDE: "text in UTF-16 or UTF-32; write it in UTF-8, for example with iconv",
    CR_LINES: "text whose lines end in CR alone; write it with LF, for example with `tr '\\r' '\\n'`",
    "trace_events": "an object of Chrome's trace format; write its events alone, for example with `jq -c '.traceEvents[]'`",
    "jets_array": "an array of JETS records; write one record a line, for example with `jq -c '.[]'`",
    "indented_json": "JSON whose records take several lines; write one record a line, for example with `jq -c` in place of `jq`",
    "gzip": "compressed by gzip where it is read as it is, or compressed twice; decompress it with `gzip -d`",
    "zstd": "compressed by zstd; decompress it with `zstd -d`",
    "xz": "compressed by xz; decompress it with `xz -d`",
    "bzip2": "compressed by bzip2; decompress it with `bzip2 -d`",
    "lz4": "compressed by lz4; decompress it with `lz4 -d`",
    "brotli": "named as compressed by Brotli (.br); decompress it with `brotli -d`, or give it another name if it is not compressed",
    "zip": "a zip archive; unpack it",
    "tar": "a tar archive; unpack it with `tar -x`",
    "parquet": "a Parquet file",
    "program": "a program",
    "http": "an HTTP message; send the trace by itself",
    "tls": "the beginning of a TLS connection; configure `tls` for the source, or connect without it",
    OLD_HEPH: "Heph of early 2021, whose events have no substream; no release of Tailrace reads this layout",
}
"""The kinds of foreign content, each with a description and advice for the user."""

FIRST_BYTES = (
    (b"\0\0\xfe\xff", WIDE),
    (b"\x1f\x8b\x08", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ\0", "xz"),
    (b"BZh", "bzip2"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"PK\x03\x04", "zip"),
    (b"PAR1", "parquet"),
    (b"\x7fELF", "program"),
    *((method + b" /", "http") for method in (b"GET", b"HEAD", b"POST", b"PUT", b"OPTIONS")),
    (b"PRI * HTTP/2", "http"),
    (b"HTTP/1.", "http"),
    *((b"\x16\x03" + bytes([minor]), "tls") for minor in range(5)),
)
_ANY_FIRST = tuple(first for first, _ in FIRST_BYTES)
TAR_AT, TAR = 257, b"ustar"

_STRING = rb'"(?:[^"\\]|\\.)*+"'
_FLAT = rb"(?:%b|[-+.\w]++|\{[^{}]*+\}|\[[^\[\]]*+\])" % _STRING
JSON_SHAPES = (
    (
        re.compile(
            rb'\{\s*(?:%b\s*:\s*%b\s*,\s*)*"traceEvents"\s*:\s*\[' % (_STRING, _FLAT), re.DOTALL
        ),
        "trace_events",
    ),
    (re.compile(rb'\[\s*\{\s*(?:"[a-z]+"\s*:[^{}]*)?"type"\s*:\s*"header"'), "jets_array"),
    (re.compile(rb"(?:\[\s*)?\{[ \t\r]*\n"), "indented_json"),
)
"""Patterns for the beginning of JSON that no decoder reads: all records in one object or array, or a record in several
lines. Each pattern has a key of `FOREIGN`. The first pattern that matches decides."""

_CR = re.compile(rb"\d[ \t]*\r\s*[#A-Z]")
"""Pattern of a CR that ends a line: the CR follows a digit, and the next line begins with a letter or `#`."""
_CONTROL = re.compile(rb"[\0-\x08\x0b\x0c\x0e-\x19\x1b-\x1f]")
_OLD_MIN = 34
_WIDE_MIN = 16
_prefix, _u16 = Struct(">II").unpack_from, Struct(">H").unpack_from


def foreign(path: str, head: bytes, formats: Iterable[Format] = ()) -> str:
    """Return the key in `FOREIGN` for content that begins with `head`, or "". `path` is "" without a file.

    `formats` has the source's format. Only this format and Tailrace's own formats are asked whether the content is a
    trace, because any other plug-in might accept any content."""
    if _is_wide(head):
        return WIDE
    # One call of `startswith` for all kinds of foreign content saves time, because this check runs for each connection.
    if head.startswith(_ANY_FIRST):
        return next(what for first, what in FIRST_BYTES if head.startswith(first))
    if head.startswith(TAR, TAR_AT) and _is_tar(head[: tarfile.BLOCKSIZE]):
        return "tar"
    if _is_old_heph(head):
        return OLD_HEPH
    # Brotli files have no characteristic first bytes, so the suffix decides.
    if path.endswith(".br") and not _is_recognised(path, head, formats):
        return "brotli"
    text = head.removeprefix(BYTE_ORDER_MARK).lstrip()
    shapes = JSON_SHAPES if text.startswith((b"{", b"[")) else ()
    found = next((what for shape, what in shapes if shape.match(text)), "")
    return found or (CR_LINES if _has_cr_lines(path, head, formats) else "")


def other_format(path: str, head: bytes, own: Format) -> str | None:
    """Return the name of the format that the first bytes `head` of a file show, if it is not `own`, the source's
    format. Return "" if they show no other format, and None if they are too few to tell, because the first record may
    be incomplete.

    Ask `own` first, because several formats may recognise the same bytes. Also return "" if `own` recognises no content
    at all, as is the case for some plug-ins."""
    if not own.files.recognises_content or foreign(path, head, (own,)):
        return ""
    if own.files.recognises(path, head):
        return ""
    for each in OWN.values():
        if each.files.recognises(path, head):
            return each.name
    cut = b"\n" not in _records(head) and len(head) < HEAD
    return None if cut and not (own.files.has_own_names and own.files.stream(path)) else ""


def begins_record(head: bytes) -> bool:
    """Return whether the first bytes of a file contain at least the beginning of a record. Before the first record, a
    JSON file may have a byte order mark, brackets, commas and white space."""
    return bool(_records(head))


def _records(head: bytes) -> bytes:
    return head.removeprefix(BYTE_ORDER_MARK).lstrip(b"[," + WHITE)


def readable_before(what: str, records: Iterable[Record]) -> list[Record]:
    """Return the readable records before foreign content. No kind of foreign content except Heph's old layout has a
    readable beginning."""
    return list(takewhile(lambda r: r.kind == Kind.SESSION, records)) if what == OLD_HEPH else []


def of_datagram(records: list[Record], datagram: bytes) -> list[Record]:
    """Return the records of a datagram with an unreadable part. Foreign content in the datagram becomes one malformed
    record."""
    if not (what := foreign("", datagram)):
        return records
    before = readable_before(what, records)
    done = sum(record.size for record in before)
    return [*before, malformed(records[0].offset + done, datagram[done:], what)]


class ForeignDecoder:
    """Replaces a format's decoder when foreign content begins: all further bytes become malformed records."""

    def __init__(self, what: str, offset: int, replaced: Decoder) -> None:
        self.state = replaced.state
        self.pending = 0
        self._what = what
        self._offset = offset

    def feed(self, data: bytes) -> list[Record]:
        self._offset += len(data)
        return [malformed(self._offset - len(data), data, self._what)] if data else []

    def end(self) -> list[Record]:
        return []

    give_up = end


def _is_tar(header: bytes) -> bool:
    """Return whether the checksum in a tar header is right. A trace, too, may contain the text `ustar`."""
    try:
        tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def _is_wide(head: bytes) -> bool:
    """Return whether content is UTF-16 or UTF-32, by a byte order mark or by zeros beside ASCII characters.

    Zeros alone do not count, because the beginning of a trace may be unwritten."""
    if (head[:2], head[3:4]) == (b"\xff\xfe", b"\0") or head[:3] == b"\xfe\xff\0":
        return True
    first = head[:_WIDE_MIN]
    return len(first) == _WIDE_MIN and any(
        0 not in first[at::width] and first.count(0) == _WIDE_MIN - _WIDE_MIN // width
        for width in (2, 4)
        for at in (0, width - 1)
    )


def _is_recognised(path: str, head: bytes, formats: Iterable[Format]) -> bool:
    return any(each.files.recognises(path, head) for each in (*OWN.values(), *formats))


def _has_cr_lines(path: str, head: bytes, formats: Iterable[Format]) -> bool:
    """Return whether a text is a trace whose lines end in CR alone. In JSON, a CR may also be white space in a line."""
    if b"\n" in head or b"\r" not in head or _CONTROL.search(head):
        return False
    text = head.removeprefix(BYTE_ORDER_MARK).lstrip(b"[," + WHITE)
    if text.startswith(b"{"):
        first, _, rest = text.partition(b"\r")
        if isinstance(read_object(first.rstrip(b"]," + WHITE)), str) or not rest.strip(
            CTRL_Z + WHITE
        ):
            return False
    elif not _CR.search(text):
        return False
    return _is_recognised(path, head.replace(b"\r", b"\n"), formats)


def _is_old_heph(head: bytes) -> bool:
    """Return whether content begins with a Heph event in the layout of early 2021, which has no substream field."""
    at = 0
    while len(head) - at >= METADATA_MIN and _prefix(head, at)[0] == METADATA:
        size = _prefix(head, at)[1]
        if size < METADATA_MIN:
            return False
        at += size
    if len(head) - at < EVENT_MIN or _prefix(head, at)[0] != EVENT:
        return False
    size = _prefix(head, at)[1]
    if at + size > len(head):
        return False  # An incomplete event does not show whether it has the layout of early 2021 or the current one.
    behind = head[at + size : at + size + EVENT_MIN]
    if not any(magic.startswith(behind[:MAGIC_SIZE]) for magic in MAGICS):
        return False
    if len(behind) == EVENT_MIN and _prefix(behind, 0)[0] == EVENT:
        length = _u16(behind, EVENT_MIN - 2)[0]
        if EVENT_MIN + length <= _prefix(behind, 0)[1]:
            return False  # An event of the current layout follows, so that only the one before it is damaged.
    new, old = _u16(head, at + EVENT_MIN - 2)[0], _u16(head, at + _OLD_MIN - 2)[0]
    # In the old layout, `old` is the length of the description. A length of 0 does not prove this layout: in a damaged
    # event of the current layout, the same bytes may belong to a time, whose last bytes are often 0.
    return bool(EVENT_MIN + new > size >= _OLD_MIN + old > _OLD_MIN)
