"""Real traces of ovni, and what its own ovnidump says of them."""

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
    """Clock, MCV and payload; a jumbo's payload begins with its size."""

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
    """The records of a stream, `told` of what stands beside it."""
    decoder = FORMAT.decoder(1 << 21, None)
    decoder.begin(str(stream), "auto")
    records: list[Record] = []
    if told:
        for name, data in documents(stream):
            records += decoder.document(name, data)
    return records + decoder.feed(stream.read_bytes()) + decoder.end()


def dumped(stream: Path) -> list[Event]:
    """Return what ovnidump -x prints of a stream; of traces that it cannot read, another program."""
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
