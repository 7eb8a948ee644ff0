"""The contract between the bytes of a source and the rest of Tailrace.

A decoder is bytes in, records out: no clock, no logging, no I/O, no exceptions. Every format keeps
three promises, and one suite (`tests/decoding/test_conformance.py`) holds all of them to these:

1. How the bytes are cut into `feed` calls never changes the records.
2. Records *tile* the input: sorted by offset, each begins where the one before it ended; nothing is
   skipped, nothing is read twice. What cannot be read is a malformed record with a reason.
3. No input raises.

All that a decoder must remember between calls is in `state`, a msgspec struct that survives
`msgspec.msgpack` unchanged: a checkpoint stores it and a restarted daemon goes on from it.
Memory is bounded: what waits for its end never exceeds `limit` bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from tailrace.model.record import Record


class Decoder(Protocol):
    """One session's bytes, in order, to records. `state` is None at first."""

    @property
    def state(self) -> msgspec.Struct: ...

    @property
    def pending(self) -> int:
        """Bytes taken by `feed` that no record covers yet."""
        ...

    def feed(self, data: bytes, /) -> list[Record]:
        """The records that `data` completes, in order of offset."""
        ...

    def end(self) -> list[Record]:
        """The input is over, or (datagrams) a record cannot go on past this point: what is left.

        The decoder can be fed again afterwards; offsets go on."""
        ...


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """What the rest of Tailrace knows of a format. Each module in `formats` has one, named FORMAT.

    `decoder(limit, state)` makes a decoder whose longest record is `limit` bytes, fresh for None or
    going on from a `state` decoded as `state_type`.
    `counter_bits` is the width of the producer's per-stream counter, None where it has none.
    `whole` says of a datagram that it is one whole record: such ones may be decoded as one piece.
    `flaws` and `malformed` are the closed sets of reasons its records may carry.
    """

    name: str
    decoder: Callable[[int, Any], Decoder]
    state_type: type[msgspec.Struct]
    flaws: frozenset[str]
    malformed: frozenset[str]
    counter_bits: int | None = None
    whole: Callable[[bytes], bool] | None = None
