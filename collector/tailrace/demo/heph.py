"""Generate numbered Heph packets as a parallel solver might write them (Heph trace format 0.1.0).

Each stream is one worker going through time steps. The parts of a step are written as they finish, and
the step itself after them, as real writers do. So end times grow within a stream, and start times do not.
All attribute types occur. A packet has about 75 bytes on average.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from random import Random
from struct import pack, unpack_from
from typing import NamedTuple

EVENT_MAGIC, METADATA_MAGIC = 0xC1FC1FB7, 0x75D11D4D
DATAGRAM_BYTES = 1432
"""The payload of an Ethernet frame, without IPv6 and a tunnel's header."""

Value = int | float | str | Sequence[int]
Attributes = Mapping[str, Value]


class Packet(NamedTuple):
    """One event. `counter` is unwrapped; on the wire it is modulo 2^32."""

    stream: int
    counter: int
    data: bytes


def epoch(unix_ns: int) -> bytes:
    """Return the metadata packet that gives the time of tick 0."""
    return pack(">IIH5sQ", METADATA_MAGIC, 23, 5, b"epoch", unix_ns)


def heph_events(
    seed: int, n: int, streams: Sequence[int] = (0, 1, 2, 3), *, first: int = 0
) -> Iterator[Packet]:
    """Yield `n` events in total, on streams that take turns at random. Counters begin at `first`."""
    order = Random(f"{seed}/order")  # noqa: S311 - traffic, not secrets
    workers = {stream: _worker(seed, stream, first) for stream in streams}
    for _ in range(n):
        yield next(workers[order.choice(streams)])


def datagrams(packets: Iterator[bytes], limit: int = DATAGRAM_BYTES) -> Iterator[bytes]:
    """Join packets into datagrams of at most `limit` bytes. A longer packet gets a datagram of its own."""
    datagram = b""
    for packet in packets:
        if datagram and len(datagram) + len(packet) > limit:
            yield datagram
            datagram = b""
        datagram += packet
    if datagram:
        yield datagram


def numbers(datagram: bytes) -> list[tuple[int, int]]:
    """Return stream and counter (as on the wire) of each event in a datagram of whole packets."""
    found = []
    at = 0
    while at < len(datagram):
        magic, size = unpack_from(">II", datagram, at)
        if magic == EVENT_MAGIC:
            found.append(unpack_from(">II", datagram, at + 8))
        at += size
    return found


def event(
    stream: int, counter: int, start: int, end: int, description: str, attributes: Attributes
) -> bytes:
    """Return one event packet. Times are nanoseconds since the epoch."""
    body = _text(description) + b"".join(_text(n) + _value(v) for n, v in attributes.items())
    head = pack(">IIIIQQQ", EVENT_MAGIC, 40 + len(body), stream, counter % 2**32, 0, start, end)
    return head + body


def _worker(seed: int, stream: int, first: int) -> Iterator[Packet]:
    """Yield a worker's events, without end."""
    random = Random(f"{seed}/{stream}")  # noqa: S311 - traffic, not secrets
    counters = count(first)
    now = random.randrange(1_000_000)
    for step in count():
        begun = now
        for description, attributes in _parts(random, step):
            start = now
            now += random.randrange(20_000, 400_000)
            counter = next(counters)
            yield Packet(
                stream, counter, event(stream, counter, start, now, description, attributes)
            )
        counter = next(counters)
        yield Packet(stream, counter, event(stream, counter, begun, now, "step", {"number": step}))
        now += random.randrange(1_000, 20_000)


def _parts(random: Random, step: int) -> Iterator[tuple[str, Attributes]]:
    """Yield the work within a time step."""
    yield (
        "receive halo",
        {"neighbours": [random.randrange(64) for _ in range(random.randrange(1, 5))]},
    )
    for _ in range(random.randrange(1, 4)):
        yield (
            "solve",
            {"residual": random.random() / (step + 1), "iterations": random.randrange(1, 40)},
        )
    if random.random() < 0.2:
        yield "rebalance", {"cells moved": random.randrange(-500, 500)}
    if step % 10 == 9:
        yield (
            "write checkpoint",
            {"path": f"step-{step:06}.h5", "bytes": random.randrange(2**20, 2**24)},
        )
    yield "send halo", {}


def _text(string: str) -> bytes:
    data = string.encode()
    return pack(">H", len(data)) + data


def _value(value: Value) -> bytes:
    if isinstance(value, str):
        return b"\x04" + _text(value)
    if isinstance(value, float):
        return pack(">Bd", 3, value)
    if isinstance(value, int):
        return pack(">BQ", 1, value) if value >= 0 else pack(">Bq", 2, value)
    return pack(f">BH{len(value)}Q", 0x81, len(value), *value)
