"""The contract between the bytes of a source and the rest of Tailrace.

A decoder is bytes in, records out: no clock, no logging, no I/O, no exceptions. Every format keeps
three promises, and one suite (`tests/decoding/test_conformance.py`) holds all of them to these:

1. How the bytes are cut into `feed` calls never changes the records.
2. Records *tile* the input: sorted by offset, each begins where the one before it ended; nothing is
   skipped, nothing is read twice. What cannot be read is a malformed record with a reason. Records
   of size 0 may stand between them: what the bytes so far imply and do not spell (events that are
   missing, a name that is known only now).
3. No input raises.

All that a decoder must remember between calls is in `state`, a msgspec struct that survives
`msgspec.msgpack` unchanged: a checkpoint stores it and a restarted daemon goes on from it.
Memory is bounded: what waits for its end never exceeds `limit` bytes, and what else grows gives way
(`HoldingDecoder`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from tailrace.model.holding import Holding
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

    def give_up(self) -> list[Record]:
        """Return what is pending as records, malformed as `too_long` where it is part of a record.

        Memory is short: the rest of the record is unreadable as well, as of a record over `limit`.
        An empty list means that the few bytes pending cannot be told apart yet."""
        ...


@runtime_checkable
class FileDecoder(Decoder, Protocol):
    """A decoder that wants to know which file it reads, and of the documents beside it."""

    def begin(self, path: str, dialect: str) -> None:
        """Before the first byte, of a file's session only. `path` is absolute and may be that of a
        compressed file; `dialect` is one of the format's `dialects`, or "auto"."""
        ...

    def document(self, name: str, data: bytes, /) -> list[Record]:
        """A document of this stream was found or has changed: its name as given by
        `Files.documents`, its whole content, which may be empty or half-written. Records of size 0
        at the place the stream has reached. Documents may come before or after any byte."""
        ...


@runtime_checkable
class EndingDecoder(Decoder, Protocol):
    """A decoder of streams that say their end: the lack of an end tells something."""

    @property
    def stream(self) -> str:
        """The stream whose end is meant, "" for the whole session."""
        ...

    @property
    def lacking(self) -> str | None:
        """What of the end has not come so far, in the word of the gap that `end` would give; "" when
        nothing is lacking, None while it is not known whether an end will be said."""
        ...


@runtime_checkable
class HoldingDecoder(Decoder, Protocol):
    """A decoder whose state grows with its input, beyond what waits for its end.

    How bytes are cut still does not change the records, unless the state gives way in between."""

    @property
    def holdings(self) -> Sequence[Holding]:
        """Return the containers of its state as they are now."""
        ...


class Writer(NamedTuple):
    """The process that writes a file, as the file's path names it."""

    host: str
    pid: int


def _unnamed(path: str) -> Writer | None:  # noqa: ARG001 - a path that names no process
    return None


def _alone(path: str) -> tuple[str, ...]:  # noqa: ARG001 - a stream without documents
    return ()


def _visible(path: str) -> bool:
    return not posixpath.basename(path).startswith(".")


def without_gz(path: str) -> str:
    """A file and its compressed form have this in common."""
    return path.removesuffix(".gz")


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """How a format's streams lie in directories. Paths are absolute, with "/" between their parts.

    `stream` says whether a file is a stream's; all others are left alone.
    `documents` are the files that tell something about a stream, relative to its directory.
    `group` is the run that a stream belongs to: streams of one group share names and a clock.
    `copy` is what two files have in common when one may be a moved or compressed copy of the other;
    they are taken for one stream only if their first bytes are the same, too.
    `writer` is the process that writes a stream, where its path names one.
    `recognises` says of a path and the file's first bytes (uncompressed, up to 4 KiB) whether they
    are this format's.
    `document_max` bytes is the longest document that is read.
    """

    stream: Callable[[str], bool] = _visible
    documents: Callable[[str], tuple[str, ...]] = _alone
    group: Callable[[str], str] = posixpath.dirname
    copy: Callable[[str], str] = without_gz
    writer: Callable[[str], Writer | None] = _unnamed
    recognises: Callable[[str, bytes], bool] = lambda path, head: False  # noqa: ARG005
    document_max: int = 4 * 2**20

    @property
    def has_documents(self) -> bool:
        return self.documents is not _alone


class Acknowledgement(msgspec.Struct, frozen=True):
    """What a client is told of the session it announced (clients/PROTOCOL.md, `tailrace.ack`).

    `streams` are numbers below which everything is durable, in `holes` (stream, first number, how
    many) or given up; `given_up` how many events of a stream are missing and not asked for any more;
    `uncounted` are streams of which nobody knows what is missing; `turn` is that of the client's last
    announcement. Numbers are as on the wire."""

    session: str
    turn: int
    streams: dict[str, int]
    holes: list[tuple[str, int, int]]
    goodbye: bool
    given_up: dict[str, int] = {}
    uncounted: list[str] = []


class Waiting(Protocol):
    """The part of a decoder's state that holds the bytes of a record that is not whole yet."""

    waiting: bytes


def _itself(state: Any) -> Waiting:  # noqa: ANN401 - of the format's own type
    return state  # type: ignore[no-any-return]


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """What the rest of Tailrace knows of a format. Each module in `formats` has one, named FORMAT.

    `transports` are the types of source that can carry it: files (`tail`) at least.
    `decoder(limit, state)` makes a decoder whose longest record is `limit` bytes, fresh for None or
    going on from a `state` decoded as `state_type`.
    `counter_bits` is the width of the producer's per-stream counter, None where it has none.
    `whole` says of a datagram that it is one whole record: such ones may be decoded as one piece.
    `flaws` and `malformed` are the closed sets of reasons its records may carry.
    `files` is how its files are found; `dialects` the values, beside "auto", of a source's `dialect`.
    `waiting` gives the part of a state that holds bytes of an unfinished record as its `waiting`. A
    checkpoint may leave these bytes out and read them from the spool again.
    `acknowledge` gives the bytes of an answer to a client, where the format has such answers.
    """

    name: str
    decoder: Callable[[int, Any], Decoder]
    state_type: type[msgspec.Struct]
    flaws: frozenset[str]
    malformed: frozenset[str]
    transports: tuple[str, ...] = ("tail",)
    counter_bits: int | None = None
    whole: Callable[[bytes], bool] | None = None
    files: Files = Files()
    dialects: tuple[str, ...] = ()
    waiting: Callable[[Any], Waiting] = _itself
    acknowledge: Callable[[Acknowledgement], bytes] | None = None
