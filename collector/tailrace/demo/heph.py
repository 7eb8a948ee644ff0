"""Generate numbered Heph packets as a parallel solver might write them (Heph trace format 0.1.0).

Each stream is one worker going through time steps. The parts of a step are written as they finish, and
the step itself after them, as real writers do. So end times grow within a stream, and start times do not.
All attribute types occur. A packet has about 75 bytes on average.

A `Mangler` stands for the network: it drops, doubles, delays and reorders datagrams, and logs what it did to each event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
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


DROPPED, DUPLICATED, REORDERED, DELAYED = "dropped", "duplicated", "reordered", "delayed"


class Chances(NamedTuple):
    """The probability of each deed for a datagram, of which it suffers at most one, and the depths.
    Between 1 and `reorder_depth` later datagrams pass a reordered datagram; more, up to `delay_depth`,
    pass a delayed one."""

    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    delay: float = 0.0
    reorder_depth: int = 4
    delay_depth: int = 40


class Deed(NamedTuple):
    """One deed to one event. `by` is how many later datagrams were to pass it."""

    action: str
    stream: int
    counter: int
    by: int = 0


class Mangler:
    """One direction of a bad network. `log` has a `Deed` for each event of each mangled datagram. All
    other events went straight through.

    `spare` selects the datagrams to leave alone."""

    def __init__(
        self, seed: int, chances: Chances, spare: Callable[[bytes], bool] | None = None
    ) -> None:
        self.log: list[Deed] = []
        self._random = Random(f"mangle/{seed}")  # noqa: S311 - traffic, not secrets
        self._chances = chances
        self._spare = spare
        self._passed = 0
        self._held: list[tuple[int, int, bytes]] = []

    def push(self, datagram: bytes) -> list[bytes]:
        """Accept a datagram, and return the datagrams that leave now."""
        action = None if self._spare and self._spare(datagram) else self._choose()
        self._passed += 1
        leaving = [datagram]
        by = 0
        if action == DROPPED:
            leaving = []
        elif action == DUPLICATED:
            leaving = [datagram, datagram]
        elif action is not None:
            depth = self._chances.reorder_depth
            by = self._random.randint(1, depth)
            if action == DELAYED:
                by = self._random.randint(depth + 1, self._chances.delay_depth)
            heappush(self._held, (self._passed + by, self._passed, datagram))
            leaving = []
        if action is not None:
            self.log += [Deed(action, *number, by) for number in numbers(datagram)]
        while self._held and self._held[0][0] <= self._passed:
            leaving.append(heappop(self._held)[2])
        return leaving

    def finish(self) -> list[bytes]:
        """Return the datagrams that are still held back."""
        return [heappop(self._held)[2] for _ in range(len(self._held))]

    def counters(self, action: str) -> dict[int, list[int]]:
        """Return the counters, by stream, of the events to which `action` was done."""
        found: dict[int, list[int]] = {}
        for deed in self.log:
            if deed.action == action:
                found.setdefault(deed.stream, []).append(deed.counter)
        return found

    def _choose(self) -> str | None:
        chances = self._chances
        at = self._random.random()
        for action, chance in (
            (DROPPED, chances.drop),
            (DUPLICATED, chances.duplicate),
            (REORDERED, chances.reorder),
            (DELAYED, chances.delay),
        ):
            if at < chance:
                return action
            at -= chance
        return None


def mangle(
    seed: int,
    datagrams: Iterable[bytes],
    chances: Chances,
    spare: Callable[[bytes], bool] | None = None,
) -> tuple[list[bytes], list[Deed]]:
    """Send all `datagrams` through one `Mangler`, and return its output and its log."""
    mangler = Mangler(seed, chances, spare)
    leaving = [out for datagram in datagrams for out in mangler.push(datagram)]
    return leaving + mangler.finish(), mangler.log
