"""Generate a trace of Heph with the shares of events that a run of four workers and eight actors has.

Events are written when they end, so enclosing events follow those inside them. One event in eight is on stream 0, which
all threads share. Packets have 88 bytes on average, as those of the real runtime.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from benchmarks.inputs.trace import Written

EPOCH = 1_790_000_000_000_000_000
EPOCH_PACKET = Struct(">IIH5sQ")
_HEAD = Struct(">IIIIQQQ")
_MAGIC, _METADATA = 0xC1FC1FB7, 0x75D11D4D
_NAME = "heph_rt::actor::relay"


class Step(NamedTuple):
    """A step of a worker within one turn: its start after the turn's start (ns), its duration (ns), and its attributes."""

    name: str
    start: int
    duration: int
    fields: tuple[str, ...]


STEPS = (
    Step("receiving message", 400, 250, ()),
    Step("sending message", 700, 350, ()),
    Step("receiving message", 1100, 200, ()),
    Step("Running thread-local process", 300, 1150, ("id", "name")),
    Step("Polling for OS events", 1500, 4000, ()),
    Step("Scheduling thread-local processes based on timers", 5600, 90, ("amount",)),
    Step("Scheduling thread-local processes", 5750, 130, ("amount",)),
    Step("Scheduling processes", 5900, 160, ("local amount", "shared amount")),
    Step("Running thread-safe process", 6100, 900, ("id", "name")),
)
TURN = 7200


class Event(NamedTuple):
    """A step with the encoded bytes after its header. There is one variant for each actor."""

    start: int
    duration: int
    bodies: list[bytes]


def write(home: Path, events: int, seed: int, streams: int = 5) -> Written:
    """Write one trace with the given number of streams. The events are divided among the streams."""
    path, size = home / "heph.trace", 0
    with path.open("wb") as file:
        for piece in _pieces(events, seed, streams):
            size += file.write(piece)
    return Written((path.name,), size)


def packets(data: bytes) -> Iterator[bytes]:
    """Yield the packets of a trace one after the other."""
    at = 0
    while at < len(data):
        end = at + int.from_bytes(data[at + 4 : at + 8], "big")
        yield data[at:end]
        at = end


def epoch_packet(epoch: int) -> bytes:
    """Return the packet with which a producer begins: it states the time of tick 0."""
    return EPOCH_PACKET.pack(_METADATA, EPOCH_PACKET.size, 5, b"epoch", epoch)


def _pieces(events: int, seed: int, streams: int) -> Iterator[bytes]:
    rng = random.Random(seed)
    steps = [_event(step, rng) for step in STEPS]
    numbers, clocks = [0] * streams, [0] * streams
    yield epoch_packet(EPOCH)
    worker = made = 0
    head, magic, size = _HEAD.pack, _MAGIC, _HEAD.size
    while made < events:
        worker = worker % (streams - 1) + 1 if streams > 1 else 0
        begun = clocks[worker]
        actor = rng.randrange(8)
        parts: list[bytes] = []
        for index, (start, duration, bodies) in enumerate(steps[: events - made]):
            stream = 0 if index == 1 else worker
            body = bodies[actor]
            at = begun + start
            parts += (
                head(
                    magic, size + len(body), stream, numbers[stream], 0, at, at + duration + actor
                ),
                body,
            )
            numbers[stream] += 1
        made += len(steps[: events - made])
        clocks[worker] = begun + TURN + rng.randrange(2000)
        yield b"".join(parts)


def _event(step: Step, rng: random.Random) -> Event:
    bodies = []
    for actor in range(8):
        values = (_attribute(field, actor, rng) for field in step.fields)
        bodies.append(len(step.name).to_bytes(2, "big") + step.name.encode() + b"".join(values))
    return Event(step.start, step.duration, bodies)


def _attribute(field: str, actor: int, rng: random.Random) -> bytes:
    key = len(field).to_bytes(2, "big") + field.encode()
    if field == "name":
        return key + b"\4" + len(_NAME).to_bytes(2, "big") + _NAME.encode()
    value = 0x7F0000000000 + 64 * actor if field == "id" else rng.randrange(3)
    return key + b"\1" + value.to_bytes(8, "big")
