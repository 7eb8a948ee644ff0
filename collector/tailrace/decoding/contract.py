"""The interfaces of decoders, encoders and formats.

A decoder turns bytes into records. It reads no clock, does no I/O and logs nothing. Three guarantees are checked by
`tests/decoding/test_conformance.py`:

1. No input raises an exception.
2. The division of the input into `feed` calls does not change the records, except after `settle` or an eviction.
3. Records *tile* the input: sorted by offset, each begins where the previous one ended. Unreadable bytes become
   malformed records with a reason. Records of size 0 state facts that follow from the bytes so far, such as missing
   events. Late events of ovni may be sorted by clock.

`state` has all data that a decoder keeps between calls: a msgspec struct that survives `msgspec.msgpack` unchanged. A
checkpoint stores it, and a restarted daemon continues from it. An unfinished record never exceeds `limit` bytes, and
all other growing state can be evicted."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeGuard, runtime_checkable

import msgspec

from tailrace.model.holding import Holding
from tailrace.model.record import Kind, Record, RunPiece
from tailrace.rows.block import Block


class Decoder(Protocol):
    """Decodes the bytes of one session, in order, into records."""

    @property
    def state(self) -> msgspec.Struct: ...

    @property
    def pending(self) -> int:
        """Number of bytes that were passed to `feed` and are not yet part of a returned record."""
        ...

    def feed(self, data: bytes, /) -> list[Record]:
        """Return the records that are complete after the arrival of `data`, in the order of their bytes."""
        ...

    def end(self) -> list[Record]:
        """Decode the pending bytes at the end of the input or of a datagram. `feed` may follow; offsets continue."""
        ...

    def give_up(self) -> list[Record]:
        """Return the pending bytes as records, because memory is short. If they are a part of a record, they become
        malformed (`too_long`), as do the later bytes of this record."""
        ...


@runtime_checkable
class BlockDecoder(Decoder, Protocol):
    """A decoder with a compiled kernel, which packs the events with the most frequent set of fields into blocks of
    rows."""

    @property
    def block_min(self) -> int:
        """Minimum size (bytes) of input for which `blocks` may pack a block. Shorter input goes to `feed`."""
        ...

    def blocks(self, data: bytes, /) -> list[Block | Record]:
        """Decode like `feed`, but return rows in blocks, and single records between the blocks.

        Rows of several processes that alternate in the input may be grouped by process."""
        ...


@runtime_checkable
class QuickDecoder(Decoder, Protocol):
    """A decoder with a fast path for the most frequent records, and a slow path that reads records one by one."""

    def take_slow(self) -> int:
        """Return how many records the slow path has read since the last call of `take_slow`."""
        ...


@runtime_checkable
class FileDecoder(Decoder, Protocol):
    """A decoder that needs the path of its file, and the documents (such as metadata files) in the file's directory."""

    def begin(self, path: str, dialect: str) -> None:
        """Take the absolute path of the session's file, before the first byte. Not called for sessions without a file.

        `dialect` is "auto" or one of the format's `dialects`."""
        ...

    def document(self, name: str, data: bytes, /) -> list[Record]:
        """Read a new or changed document, before or after any byte. Return records of size 0 at the current offset.

        `name` is from `Files.documents`. `data` is the whole content, which may be half-written."""
        ...


@runtime_checkable
class EndingDecoder(Decoder, Protocol):
    """A decoder of a format in which each complete stream ends with an end mark, a special last record. If the end mark
    is missing, events are lost."""

    @property
    def stream(self) -> str:
        """Name of the stream that must have an end mark; "" if the whole session must have one."""
        ...

    @property
    def lacking(self) -> str | None:
        """Detail of the gap record that `end` would return if the input ended now, without an end mark.

        "" if nothing is missing; None while it is unknown whether the input will have an end mark."""
        ...


@runtime_checkable
class AskingDecoder(Decoder, Protocol):
    """A decoder whose events may have a key in place of a name. The input may define the key's name later (see
    `model.record.NAME_OF_ROW`)."""

    @property
    def asked(self) -> Collection[str]:
        """Keys that decoded events have in place of names, and whose names the input has not defined so far. "" stands
        for further keys, which are not stored."""
        ...


@runtime_checkable
class SettlingDecoder(Decoder, Protocol):
    """A decoder that has more to report when the input pauses, such as a last record without its newline."""

    def settle(self) -> list[Record]:
        """When the input pauses, decode a last record that lacks only its terminator. Take back those gaps (reports of
        missing events) that are wrong if no more input follows.

        Return only records that later bytes cannot change. A later terminator becomes a record of its own."""
        ...


@runtime_checkable
class HoldingDecoder(Decoder, Protocol):
    """A decoder whose state grows with the input. If memory is short, state may be evicted between calls of `feed`."""

    @property
    def holdings(self) -> Sequence[Holding]:
        """Parts of the state that grow with the input, from which entries can be evicted."""
        ...


@runtime_checkable
class SeparatingDecoder(HoldingDecoder, Protocol):
    """A decoder of input that several processes may have written. It keeps separate state for each process."""

    @property
    def processes(self) -> Collection[int]:
        """Ids of the processes of which the input may have further records."""
        ...

    @property
    def pieces(self) -> Mapping[int, RunPiece | None]:
        """Return, by process id, the part of the process's last run (program execution) that is in this input. Leave
        out a process if no other input can contain further parts of its run.

        The value is None if a part of the run is missing, and event ids do not show whether another input has this
        part."""
        ...

    def lacking_of(self, process: int) -> str | None:
        """Return the detail of the gap record that a missing end mark causes for the last run of the process (see
        `EndingDecoder.lacking`); None for an unknown process."""
        ...


# Functions that return whether a decoder has the members of an optional interface


def packs(decoder: Decoder) -> TypeGuard[BlockDecoder]:
    return _keeps(decoder, BlockDecoder)


def is_quick(decoder: Decoder) -> TypeGuard[QuickDecoder]:
    return _keeps(decoder, QuickDecoder)


def reads_files(decoder: Decoder) -> TypeGuard[FileDecoder]:
    return _keeps(decoder, FileDecoder)


def states_end(decoder: Decoder) -> TypeGuard[EndingDecoder]:
    return _keeps(decoder, EndingDecoder)


def asks(decoder: Decoder) -> TypeGuard[AskingDecoder]:
    return _keeps(decoder, AskingDecoder)


def asked_names(decoder: Decoder) -> Collection[str]:
    """Return the keys that decoded events have in place of names, and whose names the input has not defined so far."""
    return decoder.asked if asks(decoder) else ()


def settles(decoder: Decoder) -> TypeGuard[SettlingDecoder]:
    return _keeps(decoder, SettlingDecoder)


def holds(decoder: Decoder) -> TypeGuard[HoldingDecoder]:
    return _keeps(decoder, HoldingDecoder)


def separates(decoder: Decoder) -> TypeGuard[SeparatingDecoder]:
    return _keeps(decoder, SeparatingDecoder)


_KEPT: dict[tuple[type, type], bool] = {}
"""Cache of `isinstance` results. An uncached check takes 15 µs, and a session needs several checks."""


def _keeps(decoder: Decoder, protocol: type) -> bool:
    key = (type(decoder), protocol)
    if key not in _KEPT:
        _KEPT[key] = isinstance(decoder, protocol)
    return _KEPT[key]


class Encoder(Protocol):
    """Turns the records of one session into bytes that a decoder reads as the same records. It does no I/O.

    Begin and end of a span are two records if they are separate in the input; each has all attributes of the span. With
    `repair`, an encoder leaves out records that other readers refuse, and adds missing ends."""

    @property
    def added(self) -> Mapping[str, int]:
        """Number of additions that `repair` made, by kind."""
        ...

    def encode(self, record: Record, /, *, following: Record | None) -> bytes | None:
        """Return bytes that a decoder reads as the same record; None to leave the record out.

        Return empty bytes for a record that the decoder added. `following` is the next record; None after the last."""
        ...

    def close(self) -> bytes | None:
        """Return the bytes after the last record; with `repair`, None if other readers refuse the stream."""
        ...


@runtime_checkable
class FileEncoder(Encoder, Protocol):
    """An encoder that needs the original path of the file, and also writes documents, such as metadata files."""

    def begin(self, path: str, run: dict[str, Any]) -> None:
        """Take the path of the session's file, before the first record. The encoders of one `Files.group` share the
        dict `run`."""
        ...

    def documents(self) -> dict[str, bytes]:
        """Return the contents of the stream's documents by name (`Files.documents`).

        Called after all streams of one `Files.group` are closed. If two encoders return the same name, the first
        document counts."""
        ...


class Writer(NamedTuple):
    """The host and the PID of the process that writes a file, as the file's path names them."""

    host: str
    pid: int


def _alone(path: str) -> tuple[str, ...]:  # noqa: ARG001 - a stream without documents
    return ()


def _nothing(path: str, head: bytes) -> bool:  # noqa: ARG001 - a format without a typical beginning
    return False


def _visible(path: str) -> bool:
    return not posixpath.basename(path).startswith(".")


def without_gz(path: str) -> str:
    """Return a path without the suffix `.gz` of a compressed file."""
    return path.removesuffix(".gz")


_DERIVED = re.compile(
    r"""(?ix)
    \.(?P<hidden>.+)\.(?:sw[a-p]|[a-z0-9]{6})
    | (?P<before>.+?) (?: ~ | \.~\d+~ | \.\d+ | -\d{8}(?:\d\d)?(?:-\d+)?
        | \.\d{4}(?:-\d\d){2}(?:[_-]\d\d(?:-\d\d){0,2})? | [._-](?:bak|backup|old|orig|save?|copy|te?mp)\d*
        | \.(?:part|partial|filepart|crdownload|download|sw[a-p]) )
    | \#(?P<between>.+?)(?:\.\d+)?\#
    | (?:copy|backup)(?:[ ]\(\d+\))?[ ]of[ ](?P<behind>.+)
    | (?P<stem>.+?) (?: [ ]\([^()]*\) | [ _-]+(?:copy|old|orig|bak|backup)(?:[ ]?\(?\d+\)?)? ) (?P<suffix>\.[^ ]*)?
    """
)
"""Pattern of the names that editors, download tools, log rotation, file managers and people give to copies of a
file."""


def originals(path: str) -> list[str]:
    """Return the paths of files of which the file `path` may be a copy, judging by the names. The most similar name
    comes first."""
    found: list[str] = []
    directory, name = posixpath.split(without_gz(path))
    while match := _DERIVED.fullmatch(name):
        name = without_gz("".join(filter(None, match.groups())))
        found.append(posixpath.join(directory, name))
    return found


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """The layout of a format's files in directories. Each function gets an absolute path, with "/" as separator."""

    # `stream(path)` returns whether the name of a file is a possible name of a stream.
    stream: Callable[[str], bool] = _visible
    # `documents(path)` returns the paths of a stream's documents, relative to the stream's directory.
    documents: Callable[[str], tuple[str, ...]] = _alone
    # `described(path)` returns the path of the only stream that a document describes, or "".
    described: Callable[[str], str] = lambda path: ""  # noqa: ARG005
    # `group(path)` returns the key of the streams of one program execution, which share names and a clock.
    group: Callable[[str], str] = posixpath.dirname
    # `copy(path)` returns the key that a file shares with its moved or compressed copy. Files with equal keys are one
    # stream only if their first bytes are equal, too.
    copy: Callable[[str], str] = without_gz
    # `writer(path)` returns the process that writes a stream, if the path names the process.
    writer: Callable[[str], Writer | None] = lambda path: None  # noqa: ARG005
    # `recognises(path, head)` returns whether a file has this format, by its first bytes (uncompressed, up to 4 KiB).
    # The check of the bytes may be less strict for a typical path, but no path may be required.
    recognises: Callable[[str, bytes], bool] = _nothing
    # `pieces(path)` returns whether the name is typical of a tool that splits traces. An import leaves out a file with
    # such a name, or with the same first record as another file, if other files have all its lines. None if no tool
    # splits traces.
    pieces: Callable[[str], bool] | None = None
    # `dated(head)` returns whether the first bytes of a file contain the time at which its run began, or the process
    # and the time of an event. Without such a time, files of several runs may begin alike.
    dated: Callable[[bytes], bool] = lambda head: False  # noqa: ARG005
    document_max: int = 4 * 2**20  # Maximum size (bytes) of a document.

    @property
    def has_own_names(self) -> bool:
        """Return whether the format restricts the file names of its streams."""
        return self.stream is not _visible

    @property
    def recognises_content(self) -> bool:
        """Return whether the first bytes of a file can show this format."""
        return self.recognises is not _nothing

    @property
    def has_documents(self) -> bool:
        return self.documents is not _alone


class Acknowledgement(msgspec.Struct, frozen=True):
    """The content of an acknowledgement (`tailrace.ack` in clients/PROTOCOL.md), which the collector sends to a client
    about the client's session."""

    session: str
    turn: int  # The number in the client's last request for a complete acknowledgement.
    # By stream, a number: each event below it is durable, is in `holes`, or is no longer requested.
    streams: dict[str, int]
    holes: list[tuple[str, int, int]]  # Ranges of missing events: stream, first number, count.
    goodbye: bool
    given_up: dict[str, int] = {}  # By stream, number of missing events not requested any more.
    uncounted: list[str] = []  # Streams with an unknown number of missing events.


class Waiting(Protocol):
    """A part of a decoder's state: the bytes of an unfinished record."""

    waiting: bytes


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of a format. Each package in `formats` exports a `Format` as FORMAT.

    The entry point of a plug-in names a `Format`, too (docs/ADD_A_FORMAT.md)."""

    name: str
    # decoder(limit, state): creates a decoder of records of at most `limit` bytes. It starts fresh
    # if `state` is None, or continues from a `state` of the type `state_type`.
    decoder: Callable[[int, Any], Decoder]
    state_type: type[msgspec.Struct]
    flaws: frozenset[str]  # All flaws that readable records may have.
    malformed: frozenset[str]  # All reasons that malformed records may have.
    # Types of source that can carry the format; at least `tail`.
    transports: tuple[str, ...] = ("tail",)
    # Width (bits) of the producer's sequence numbers, which all records have as `counter`, except
    # gaps, heals, session records and malformed records. None if the producer numbers no events.
    counter_bits: int | None = None
    # `whole(data, sizes, first, begin)` returns the number of consecutive datagrams, from index `first` on, that have
    # only whole events and may be decoded in one piece. `data` has all datagrams, `sizes` their sizes (bytes), and
    # datagram `first` begins at the position `begin` in `data`.
    whole: Callable[[bytes, tuple[int, ...], int, int], int] | None = None
    files: Files = Files()
    dialects: tuple[str, ...] = ()  # Values of a source's `dialect` besides "auto".
    # `waiting(state)` returns the part of a decoder's state whose attribute `waiting` has the bytes of an unfinished
    # record. A checkpoint may omit these bytes, because the spool has them.
    waiting: Callable[[Any], Waiting] = lambda state: state
    acknowledge: Callable[[Acknowledgement], bytes] | None = None  # Encodes an acknowledgement.
    # `encoder(repair)` creates an encoder (see `Encoder`) for the records of one session. None if the format has none.
    encoder: Callable[[bool], Encoder] | None = None
    suffix: str = ""  # Suffix of the encoded file of a session that had no file.
    compresses: bool = False  # Whether producers compress files themselves.

    def recognises_datagram(self, datagram: bytes, limit: int) -> bool:
        """Return whether a datagram has at least one readable record of at most `limit` bytes."""
        decoder = self.decoder(limit, None)
        records = decoder.feed(datagram) + decoder.end()
        return any(record.size and record.kind != Kind.MALFORMED for record in records)
