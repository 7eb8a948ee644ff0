"""The input that earlier versions were fed before they were stopped or killed, and what comes after that.

Bytes of each source in three parts: `before` was decoded, committed and in a saved state; `after` was
on disk in the spool at least; `rest` comes once another version is there. No time, no chance: the
same bytes whoever asks, so that a table can be held against them.
"""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Iterable
from typing import NamedTuple

from tests.decoding import ovni_bytes


class Parts(NamedTuple):
    before: list[bytes]
    after: list[bytes]
    rest: list[bytes]

    @property
    def whole(self) -> bytes:
        return b"".join(self.before + self.after + self.rest)


def udp() -> Parts:
    """Stream 1, numbers 0 to 299.

    40 to 44 are late; 42 of them comes in `after`, and heals its gap. 10 comes twice. 146 and 147 leave an open hole,
    and 147 comes in `rest`. 250 to 259 never come.
    """
    before = [EPOCH, *_events(1, range(40)), *_events(1, range(45, 120))]
    before += _events(1, [10])
    after = [*_events(1, range(120, 146)), *_events(1, [42]), *_events(1, [148, 149])]
    rest = [*_events(1, [147]), *_events(1, range(150, 250)), *_events(1, range(260, 300))]
    return Parts(before, after, rest)


UDP_NEVER = {40, 41, 43, 44, 146, *range(250, 260)}


def tcp() -> Parts:
    """Stream 2 with all numbers. Events after a stop come on a connection of their own, as stream 3."""
    return Parts(
        [EPOCH, *_events(2, range(60))],
        _events(2, range(60, 100)),
        [EPOCH, *_events(3, range(50))],
    )


def jets() -> Parts:
    """Spans 1 to 20 begin in `before`.

    1 to 5 end there, 6 to 10 in `after`, and the others in `rest`. The last line of `after` is cut in two.
    """
    header = {"type": "header", "version": "2.0", "metadata": {"clock_frequency_mhz": 1000}}
    lines = [header, *(_begin(n) for n in range(1, 21)), *(_end(n) for n in range(1, 6))]
    before = b"".join(map(_line, lines))
    after = b"".join(_line(_end(n)) for n in range(6, 11)) + _line(_event(1, 3))[:40]
    rest = _line(_event(1, 3))[40:] + b"".join(_line(_end(n)) for n in range(11, 21))
    rest += _line({"type": "footer", "capture_end_clk": 9999, "total_records": 20, "total_annotations": 0, "total_events": 1})  # fmt: skip
    return Parts([before], [after], [rest])


def dftracer() -> Parts:
    """A compressed trace with one member for each part: events 2 to 300 without 50 to 52, and 201 without 202."""
    start = b'{"id":1,"name":"start","cat":"dftracer","type":1,"pid":7,"tid":8,"ts":90,"dur":0,"ph":1,"args":{"hhash":"68","cmd_hash":"c1","cwd":"d1"}}\n'
    end = b'{"id":301,"name":"end","cat":"dftracer","type":1,"pid":7,"tid":8,"ts":9000,"dur":0,"ph":1,"args":{"hhash":"68","cfg":{"aggregation_enable":0},"num_events":300}}\n'
    first = b"[\n" + start + b"".join(_read(n) for n in range(2, 120) if n not in {50, 51, 52})
    second = b"".join(_read(n) for n in range(120, 202))
    third = b"".join(_read(n) for n in range(203, 301)) + end
    members = [gzip.compress(part, mtime=0) for part in (first, second, third)]
    # The second member has not arrived completely when the version changes.
    torn = members[1]
    return Parts([members[0], torn[:200]], [torn[200:-40]], [torn[-40:], members[2]])


def announced() -> Parts:
    """A session that its client announces, on stream 5.

    The client is disconnected when the version changes, and continues on another connection. It reports numbers 20 to
    24 as discarded.
    """
    said = _option("tailrace.session", {"session": f"{0xA11CE:032x}"})
    report = _option("tailrace.report", {"ranges": [[5, 20, 5]]})
    before = [EPOCH, said, *_events(5, range(20)), report, *_events(5, range(25, 50))]
    goodbye = _option("tailrace.goodbye", {"streams": {"5": 120}})
    return Parts(before, [], [EPOCH, said, *_events(5, range(50, 120)), goodbye])


OVNI_DOCUMENT = b'{"version": 3, "ovni": {"part": "thread", "tid": 1, "pid": 1, "loom": "a"}}'


def ovni() -> Parts:
    """The calls of a thread, each a nested pair. The parts are cut within an event."""
    events = [ovni_bytes.starts(1000)]
    for n in range(200):
        events += [ovni_bytes.event("VTx", 2000 + 10 * n, ovni_bytes.u32(n))]
        events += [ovni_bytes.event("VTp", 2005 + 10 * n, ovni_bytes.u32(n))]
    data = ovni_bytes.HEADER + b"".join(events) + ovni_bytes.ends(9000)
    return Parts([data[:2005]], [data[2005:4001]], [data[4001:]])


EPOCH = struct.pack(">IIH5sQ", 0x75D11D4D, 23, 5, b"epoch", 10**18)


def _option(name: str, value: object) -> bytes:
    """Return a metadata packet whose value is a JSON object."""
    data = json.dumps(value).encode()
    size = 10 + len(name) + len(data)
    return struct.pack(">IIH", 0x75D11D4D, size, len(name)) + name.encode() + data


def _events(stream: int, numbers: Iterable[int]) -> list[bytes]:
    return [_event_packet(stream, n) for n in numbers]


def _event_packet(stream: int, n: int) -> bytes:
    head = (0xC1FC1FB7, 46, stream, n, 0, 10_000 * n, 10_000 * n + 500, 4)
    return struct.pack(">IIIIQQQH", *head) + b"work"


def _begin(n: int) -> dict[str, object]:
    parent = n - 1 if n > 1 else None
    return {"clk": 10 * n, "type": "record", "name": f"r{n}", "record_type": "T", "id": n, "parent_id": parent}  # fmt: skip


def _end(n: int) -> dict[str, object]:
    return {"clk": 1000 + n, "type": "record_end", "record_id": n}


def _event(n: int, clk: int) -> dict[str, object]:
    return {"clk": clk, "type": "event", "name": "cut in two", "record_id": n, "description": "d"}


def _line(value: dict[str, object]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _read(n: int) -> bytes:
    return b'{"id":%d,"name":"read","cat":"POSIX","type":3,"pid":7,"tid":8,"ts":%d,"dur":3,"ph":1,"args":{"ret":0}}\n' % (n, 100 + n)  # fmt: skip
