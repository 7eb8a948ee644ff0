"""The spool's directory: whose it is, and which segments are in it.

    lock               held by the daemon that has it open; the text is its pid
    identity           32 hexadecimal digits, drawn when the spool was made
    DIGITS.segment     the log; see `segment`
    next.segment       preallocated, nothing in it yet; see `writer`

The first segment is made before `identity`, and every segment repeats it in its header. So there
is no crash after which an `identity` stands without a segment, and no way to take a directory
whose segments were removed for a new one and use its positions again.
"""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from tailrace.errors import StoreError
from tailrace.spool import disk
from tailrace.spool.segment import Header, Segment, segment_name, segment_paths
from tailrace.spool.writer import SPARE_NAME, Spare


def load(directory: Path, segment_size: int) -> list[Segment]:
    """Return the segments, oldest first; the newest ends, until it is surveyed, where it begins.

    An empty directory becomes a spool. Raise StoreError for one that is not whole.
    """
    with disk.writing(directory):
        (directory / SPARE_NAME).unlink(missing_ok=True)
    mark = directory / "identity"
    paths = segment_paths(directory)
    headers = [Header.read(path) for path in paths]
    if mark.exists():
        _check(directory, mark.read_text().strip(), headers)
    else:
        if not headers:
            header = Header(uuid4().bytes, first=0, time_ns=0)
            writer = Spare.prepare(directory, segment_size).become(header)
            writer.close()
            headers, paths = [header], [writer.segment.path]
        disk.replace(mark, headers[0].identity.hex().encode())
    ends = [header.first for header in headers[1:]] + [headers[-1].first]
    return [
        Segment(path, header, end=end, size=path.stat().st_size)
        for path, header, end in zip(paths, headers, ends, strict=True)
    ]


def _check(directory: Path, identity: str, headers: list[Header]) -> None:
    if not headers:
        raise StoreError(
            f"{directory}: all segments of this spool are gone, and with them what had not reached the table; "
            "move the directory away to begin a new spool"
        )
    for header in headers:
        if header.identity.hex() != identity:
            raise StoreError(
                f"{directory / segment_name(header.first)}: belongs to another spool than {identity}"
            )
