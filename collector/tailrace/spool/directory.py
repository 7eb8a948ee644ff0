"""The spool's directory: which spool it belongs to, and which segments are in it.

    lock               held by the daemon that has the spool open; contains its pid
    identity           32 hexadecimal digits, drawn when the spool was made
    DIGITS.segment     the log; see `segment`
    next.segment       preallocated and still empty; see `writer`
    released-DIGITS.segment    a released segment, whose file will be the next one; see `writer`

The first segment is made before `identity`, and each segment repeats the identity in its header. So
no crash leaves an `identity` without a segment, and a directory whose segments were removed is never
taken for a new one: its positions would be used again.
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
    released_paths,
    segment_first,
    segment_name,
    segment_paths,
)
from tailrace.spool.writer import SPARE_NAME, Spare

_IDENTITY = re.compile(r"[0-9a-f]{32}")


def load(directory: Path, segment_size: int, disk: Disk) -> list[Segment]:
    """Return the segments, oldest first. The newest ends where it begins until `survey` has read it.

    An empty directory becomes a spool. `identity` and the segments' headers repeat each other, so damage to
    one of them is repaired. A segment that cannot be opened is renamed to `<digits>.segment.bad`, and its
    positions count as damage. Raise StoreError if the beginning or the end of the log is lost, or if files
    of another spool are in the directory.
    """
    for path in [directory / SPARE_NAME, *released_paths(directory, disk)]:
        disk.make_way(path)
        disk.unlink(path)
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
        writer = Spare.prepare(directory / SPARE_NAME, segment_size, disk).become(header)
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
    """Return the content of `identity`; None where the file is missing or not whole."""
    try:
        text = disk.read(mark, 64).decode("ascii", errors="replace").strip()
    except OSError:
        return None
    return bytes.fromhex(text) if _IDENTITY.fullmatch(text) else None


def _readable(directory: Path, disk: Disk) -> list[Path]:
    """Return the segments that can be opened, and move the others away. Raise StoreError for the newest one."""
    paths = segment_paths(directory, disk)
    for path in paths:
        if disk.files.is_file(path):
            continue
        if path == paths[-1]:
            raise StoreError(
                f"{path}: is not a file any more, so the end of the log is unknown: restore it from a copy, or move"
                f" {directory} away to begin a new spool; what had not reached the table is lost then"
            )
        disk.make_way(path)
    return [path for path in paths if disk.files.exists(path)]


def _headers(paths: list[Path], marked: bytes | None, disk: Disk) -> list[Header]:
    """Read the segments' headers. A damaged header is rebuilt from the identity and the segment's name."""
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
