"""The spool's directory: whose it is, and which segments are in it.

    lock               held by the daemon that has it open; the text is its pid
    identity           32 hexadecimal digits, drawn when the spool was made
    DIGITS.segment     the log; see `segment`
    next.segment       preallocated, nothing in it yet; see `writer`

The first segment is made before `identity`, and each segment repeats it in its header. So there
is no crash after which an `identity` stands without a segment, and no way to take a directory
whose segments were removed for a new one and use its positions again.
"""

from __future__ import annotations

import re
from pathlib import Path
from uuid import uuid4

from tailrace.errors import StoreError
from tailrace.spool.disk import Disk
from tailrace.spool.segment import (
    HEADER_SIZE,
    Header,
    Segment,
    segment_first,
    segment_name,
    segment_paths,
)
from tailrace.spool.writer import SPARE_NAME, Spare

_IDENTITY = re.compile(r"[0-9a-f]{32}")


def load(directory: Path, segment_size: int, disk: Disk) -> list[Segment]:
    """Return the segments, oldest first; the newest ends, until it is surveyed, where it begins.

    An empty directory becomes a spool. What `identity` and segments' headers say is in several places,
    so that damage to one of them is repaired. A segment that cannot be opened is renamed to
    `<digits>.segment.bad`, and its positions are damage. Raise StoreError for a directory of which the
    beginning or the end is lost, and for files of another spool.
    """
    disk.make_way(directory / SPARE_NAME)
    disk.unlink(directory / SPARE_NAME)
    mark = directory / "identity"
    marked = _read_identity(mark, disk)
    paths = _readable(directory, disk)
    headers = _headers(paths, marked, disk)
    if not headers:
        if disk.files.exists(mark):
            raise StoreError(
                f"{directory}: all segments of this spool are gone, and with them what had not reached the"
                " table; move the directory away to begin a new spool"
            )
        header = Header(uuid4().bytes, first=0, time_ns=0)
        writer = Spare.prepare(directory, segment_size, disk).become(header)
        writer.close()
        headers, paths = [header], [writer.segment.path]
    _check(directory, marked or headers[0].identity, headers)
    if marked is None:
        disk.make_way(mark)
        disk.replace(mark, headers[0].identity.hex().encode())
    ends = [header.first for header in headers[1:]] + [headers[-1].first]
    return [
        Segment(path, header, end=end, size=max(disk.size(path), HEADER_SIZE), disk=disk)
        for path, header, end in zip(paths, headers, ends, strict=True)
    ]


def _read_identity(mark: Path, disk: Disk) -> bytes | None:
    """Return what `identity` says; None where it is not there, or not whole."""
    try:
        text = disk.read(mark, 64).decode("ascii", errors="replace").strip()
    except OSError:
        return None
    return bytes.fromhex(text) if _IDENTITY.fullmatch(text) else None


def _readable(directory: Path, disk: Disk) -> list[Path]:
    """Return the segments that can be opened; the others are moved away, but for the newest."""
    paths = segment_paths(directory, disk)
    for path in paths:
        if disk.files.is_file(path):
            continue
        if path == paths[-1]:
            raise StoreError(
                f"{path}: is no file any more, so nobody knows how far the log went: restore it from a copy,"
                f" or move {directory} away to begin a new spool; what had not reached the table is lost then"
            )
        disk.make_way(path)
    return [path for path in paths if disk.files.exists(path)]


def _headers(paths: list[Path], marked: bytes | None, disk: Disk) -> list[Header]:
    """Read the segments' headers. A damaged one says nothing that is not known from elsewhere."""
    read = [Header.read_whole(path, disk) for path in paths]
    known = marked or next((header.identity for header in read if header), None)
    if paths and known is None:
        raise StoreError(
            f"{paths[0].parent}: neither `identity` nor a segment says which spool this is: restore the"
            " directory from a copy, or move it away to begin a new spool"
        )
    return [
        header or Header(known or b"", first=segment_first(path), time_ns=0)
        for path, header in zip(paths, read, strict=True)
    ]


def _check(directory: Path, identity: bytes, headers: list[Header]) -> None:
    for header in headers:
        if header.identity != identity:
            raise StoreError(
                f"{directory / segment_name(header.first)}: belongs to the spool {header.identity.hex()},"
                f" and {directory / 'identity'} says {identity.hex()}: put the file of this spool back, or"
                " move the foreign one away; where only `identity` is wrong, remove that"
            )
