"""Read the documents of an ovni stream: its metadata, and the table of clock offsets.

libovni writes metadata, a JSON object, in place without a rename. Unreadable metadata is therefore reported only at the
end of the stream. The metadata of any thread may define marks (`ovni.mark`) for the whole trace: types with a title,
and labels of values.

The table of clock offsets (`clock-offsets.txt`) has a heading, then one line for each host: rank, host, and median,
mean and deviation of the offset (ns) to add to the host's clock. Only the median counts. A stream's host is the name of
its loom up to the first ".". A line for a host with a domain also applies to the host without the domain, unless
another line has the same name up to the first "."."""

from __future__ import annotations

import re
from hashlib import blake2b
from itertools import islice
from json.encoder import encode_basestring as quote

import msgspec

from tailrace.decoding.formats.ovni.names import Names
from tailrace.decoding.json_object import read_object
from tailrace.model.record import Record, named, session_record

OFFSETS, PROCESS = "clock-offsets.txt", "metadata.json"
"""Names of the documents that several threads share: the table of clock offsets, and the metadata of a process."""

HOSTS_MAX, LINE_MAX = 8, 1024
"""Limits of the record that quotes the table of clock offsets if it lacks the stream's host: number of lines, and
characters of a line."""

_INTEGER = re.compile(r"-?\d{1,19}")


class DocumentsState(msgspec.Struct):
    """The part of `StreamDocuments` that a checkpoint stores."""

    told: dict[str, bytes] = {}  # Digest of the last content that was reported, by document.
    unreadable: dict[str, int] = {}  # Size (bytes) of documents that were unreadable, by name.
    finished: bool = False  # Whether the metadata states that the producer has finished.
    offset: int | None = None  # Offset of this host's clock.
    others: list[str] = []  # First lines of the clock-offset table, if none is for this host.


class StreamDocuments:
    """Turns the documents of one stream into records of size 0 at the stream position `offset`."""

    def __init__(self, state: DocumentsState, names: Names) -> None:
        self.state = state
        self._names = names

    def metadata(self, offset: int, stream: str, name: str, data: bytes) -> list[Record]:
        """Return a record of changed metadata, and records of the new or changed names of marks (events that the
        program defines)."""
        state, fields = self.state, read_object(data)
        if isinstance(fields, str):
            state.unreadable[name] = len(data)
            return []
        state.unreadable.pop(name, None)
        text = msgspec.json.format(data, indent=-1).decode()
        ovni = {field.key: field.value for field in fields}.get("ovni")
        ovni = ovni if isinstance(ovni, dict) else {}
        digest = blake2b(text.encode(), digest_size=16).digest()
        if state.told.get(name) == digest:
            return []
        state.told[name] = digest
        if name != PROCESS:
            state.finished = ovni.get("finished") == 1
        names = []
        conflict = False
        for key, title in _marks(ovni.get("mark")).items():
            before = self._names.learn_mark(key, title)
            if before != title:
                names.append(named(offset, 0, f"mark:{key}", title, scope="group", stream=stream))
                conflict = conflict or before is not None
        flaw = "mark_conflict" if conflict else None
        of_process = f',"document":{quote(PROCESS)}' if name == PROCESS else ""
        about = f'{{"producer":{text}{of_process}}}'
        return [session_record(offset, 0, "metadata", about, stream=stream, flaw=flaw), *names]

    def clock_offsets(self, offset: int, stream: str, data: bytes, host: str) -> list[Record]:
        """Return a record of a new offset of this host, and a record of invalid lines in a changed table."""
        state = self.state
        lines, good = _offsets(data)
        short = [each for name, each in lines.items() if name.partition(".")[0] == host]
        found = lines.get(host) or (short[0] if len(short) == 1 else None)
        others = (
            {} if found else dict.fromkeys(line[:LINE_MAX] for line, _ in [*short, *lines.values()])
        )
        state.others = list(islice(others, HOSTS_MAX))
        records = []
        if found is not None and found[1] != state.offset:
            line, state.offset = found
            about = f'{{"clock_offset":{state.offset},"line":{quote(line)}}}'
            records.append(session_record(offset, 0, "clock_offset", about, stream=stream))
        digest = b"" if good else blake2b(data, digest_size=16).digest()
        if digest and state.told.get(OFFSETS) != digest:
            bad = session_record(offset, 0, "clock_offset", stream=stream, flaw="bad_clock_offsets")
            records.append(bad)
        state.told[OFFSETS] = digest
        return records

    def end(self, offset: int, stream: str) -> list[Record]:
        """Return records about metadata that never became readable, and about a table without a line for the host."""
        found = []
        if self.state.others:
            about = msgspec.json.encode({"lines": self.state.others}).decode()
            found.append(("clock_offset", about, "no_clock_offset"))
        for name, size in self.state.unreadable.items():
            about = f'{{"document":{quote(name)},"bytes":{size}}}'
            found.append(("metadata", about, "bad_metadata"))
        self.state.others, self.state.unreadable = [], {}
        return [
            session_record(offset, 0, name, about, stream=stream, flaw=flaw)
            for name, about, flaw in found
        ]


def _marks(types: object) -> dict[str, str]:
    """Return the names of marks (events that the program defines): titles of mark types by "TYPE", labels of mark
    values by "TYPE:VALUE"."""
    found: dict[str, str] = {}
    for type_, about in types.items() if isinstance(types, dict) else ():
        if not _INTEGER.fullmatch(type_) or not isinstance(about, dict):
            continue
        if isinstance(title := about.get("title"), str):
            found[str(int(type_))] = title
        labels = about.get("labels")
        for value, label in labels.items() if isinstance(labels, dict) else ():
            if _INTEGER.fullmatch(value) and isinstance(label, str):
                found[f"{int(type_)}:{int(value)}"] = label
    return found


def _offsets(data: bytes) -> tuple[dict[str, tuple[str, int]], bool]:
    """Return each host's line in the table, with the offset (ns) in it, and whether all lines are valid. Ignore a last
    line without a newline."""
    found: dict[str, tuple[str, int]] = {}
    good = True
    for raw in data.split(b"\n")[1:-1]:
        line = raw.decode(errors="replace")
        columns = line.split()
        if not columns:
            continue
        try:
            _, name, median, mean, deviation = columns
            offset = int(median) if _INTEGER.fullmatch(median) else int(float(median))
            float(mean), float(deviation)
        except (ValueError, OverflowError):
            good = False
            continue
        if name in found or not -(2**63) <= offset < 2**63:
            good = False
        else:
            found[name] = line, offset
    return found, good
