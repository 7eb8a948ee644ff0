"""Read traces that real programs wrote with libovni, and the output of ovni's own program ovnidump for them."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tailrace.decoding.formats.ovni import FORMAT
from tailrace.model.record import Record

TRACES = Path(__file__).parent.parent / "vectors" / "ovni" / "traces"
NAMES = sorted(path.name for path in TRACES.iterdir())


class Event(NamedTuple):
    """An event in the output of ovnidump: clock, MCV and payload. The payload of a jumbo begins with its size."""

    clock: int
    mcv: str
    payload: bytes


def streams(trace: str) -> list[Path]:
    return sorted((TRACES / trace / "ovni").rglob("*.obs"))


def documents(stream: Path) -> Iterator[tuple[str, bytes]]:
    for name in FORMAT.files.documents(str(stream)):
        if (path := stream.parent / name).exists():
            yield name, path.read_bytes()


def decode(stream: Path, *, told: bool = True) -> list[Record]:
    """Return the records of a stream. If `told` is true, the decoder first gets the documents that describe the stream."""
    decoder = FORMAT.decoder(1 << 21, None)
    decoder.begin(str(stream), "auto")
    records: list[Record] = []
    if told:
        for name, data in documents(stream):
            records += decoder.document(name, data)
    return records + decoder.feed(stream.read_bytes()) + decoder.end()


def dumped(stream: Path) -> list[Event]:
    """Return the events that `ovnidump -x` prints for a stream. ovnidump cannot read some traces. For these, return the
    events that another program has listed.
    """
    trace = TRACES / stream.relative_to(TRACES).parts[0]
    dump = trace / "ovnidump-x.txt.gz"
    if not dump.exists():
        return _listed(trace, stream)
    events = []
    for line in gzip.decompress(dump.read_bytes()).splitlines():
        clock, mcv, name, *payload = line.decode().split()
        if trace / "ovni" / name == stream.parent:
            text = payload[0].replace(":", "") if payload else ""
            events.append(Event(int(clock), mcv, bytes.fromhex(text)))
    return events


def _listed(trace: Path, stream: Path) -> list[Event]:
    events: list[Event] = []
    lines = gzip.decompress((trace / "events.txt.gz").read_bytes()).decode().splitlines()
    mine = False
    for line in lines:
        if line.startswith("#"):
            mine = trace / line[2:] == stream
        elif mine:
            _, _, mcv, clock, *payload = line.split()
            events.append(Event(int(clock), mcv, bytes.fromhex("".join(payload))))
    return events
