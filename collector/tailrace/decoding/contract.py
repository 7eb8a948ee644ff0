"""The interfaces of decoders, encoders and formats.

A decoder turns bytes into records. A decoder reads no clock, does no I/O, logs nothing and raises nothing.
Each decoder fulfils three guarantees, which `tests/decoding/test_conformance.py` checks:

1. The division of the input into `feed` calls never changes the records. Only a pause in the input may
   change them (`SettlingDecoder`).
2. Records *tile* the input: sorted by offset, each record begins where the previous record ended. No byte is skipped or read
   twice. Events that a producer writes late (ovni) may be sorted by clock. Unreadable bytes become a malformed record with a
   reason. Records of size 0 may stand between other records, for facts that follow from the bytes so far (missing events,
   late names).
3. No input raises an exception.

`state` holds all data that a decoder must keep between calls. `state` is a msgspec struct that survives `msgspec.msgpack`
unchanged: a checkpoint stores the state, and a restarted daemon continues from the stored state.
Memory is bounded: an unfinished record never exceeds `limit` bytes, and all other growing state can be
evicted (`HoldingDecoder`).
"""

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
        """Decode the pending bytes at the end of the input or of a datagram, where no record can continue.

        The caller may call `feed` again afterwards. Offsets continue to count."""
        ...

    def give_up(self) -> list[Record]:
        """Return the pending bytes as records, because memory is short. A part of a record becomes a malformed record
        with the reason `too_long`.

        Later bytes of the same record become malformed, too, as in a record larger than `limit`. Return an empty list
        if the pending bytes are too few to show whether they are a part of a record."""
        ...


@runtime_checkable
class BlockDecoder(Decoder, Protocol):
    """A decoder with a compiled kernel. The kernel packs events of the shape that occurs most often into blocks of
    rows.

    The decoder reads all other events in Python."""

    @property
    def block_min(self) -> int:
        """Minimum size (bytes) of input for which `blocks` may pack a block. The caller passes shorter input to `feed`."""
        ...

    def blocks(self, data: bytes, /) -> list[Block | Record]:
        """Decode the records that are complete after the arrival of `data`. Return their rows in blocks, and single
        records between the blocks.

        The result has the rows of the records that `feed` would return, in the same order. If records of several
        processes alternate in the input, however, the result may group the records by process."""
        ...


@runtime_checkable
class QuickDecoder(Decoder, Protocol):
    """A decoder with a fast path for records of the shape that occurs most often, and a slow path that reads all other
    records one by one."""

    def take_slow(self) -> int:
        """Return how many records the slow path has read since the last call of `take_slow`."""
        ...


@runtime_checkable
class FileDecoder(Decoder, Protocol):
    """A decoder that needs the path of the file that it reads, and the documents in the file's directory. A document is
    a file that describes a stream, such as a metadata file."""

    def begin(self, path: str, dialect: str) -> None:
        """Take the path of the session's file. The caller calls `begin` before the first byte, and not at all if the
        session reads no file.

        `path` is absolute, and may be the path of a compressed file. `dialect` is "auto" or one of the format's
        `dialects`."""
        ...

    def document(self, name: str, data: bytes, /) -> list[Record]:
        """Read a new or changed document (such as a metadata file) that describes the stream of this decoder.

        `name` is one of the names that `Files.documents` returns. `data` is the document's whole content, which may be
        empty or half-written. The caller may pass documents before or after any byte. Return records of size 0 at the
        current offset of the stream."""
        ...


@runtime_checkable
class EndingDecoder(Decoder, Protocol):
    """A decoder of a format in which the producer writes an end mark as the last record of a stream.

    If the end mark is missing, the last events of the stream are lost."""

    @property
    def stream(self) -> str:
        """Name of the stream that must have an end mark, or "" if the whole session must have an end mark."""
        ...

    @property
    def lacking(self) -> str | None:
        """Detail of the gap record that `end` would return now if the input has no end mark. The value is "" if nothing
        is missing, and None while the decoder does not know whether the input will have an end mark."""
        ...


@runtime_checkable
class AskingDecoder(Decoder, Protocol):
    """A decoder whose events may have keys instead of names (see `model.record.NAME_OF_ROW`)."""

    @property
    def asked(self) -> Collection[str]:
        """Keys in events whose names the input has not defined so far. If the decoder cannot store all of these keys,
        the key "" stands for the keys that it does not store."""
        ...


@runtime_checkable
class SettlingDecoder(Decoder, Protocol):
    """A decoder of records that end with a terminator, such as a newline. A producer may omit the terminator after its
    last record."""

    def settle(self) -> list[Record]:
        """Decode the waiting bytes of the last record if only the record's terminator is missing. The caller calls
        `settle` when the input pauses.

        The decoder must return only a record that later bytes cannot change. A terminator that arrives later becomes a
        separate record."""
        ...


@runtime_checkable
class HoldingDecoder(Decoder, Protocol):
    """A decoder whose state grows with the input, apart from the bytes of an unfinished record. If memory is short, the
    caller may evict state between two calls of `feed`. Only then may the division of the input into calls change the
    records."""

    @property
    def holdings(self) -> Sequence[Holding]:
        """Parts of the decoder's state that grow with the input. If memory is short, the caller evicts entries from
        these parts.
        """
        ...


@runtime_checkable
class SeparatingDecoder(HoldingDecoder, Protocol):
    """A decoder of input in which records of several processes may be mixed. The decoder keeps separate state for each
    process.

    If memory is short, the caller may evict the whole state of a process."""

    @property
    def processes(self) -> Collection[int]:
        """Ids of the processes of which the input may have further records."""
        ...

    @property
    def pieces(self) -> Mapping[int, RunPiece | None]:
        """For each process, by its id: the part of the process's last run (program execution) that is in this input.

        The map has a process only if other inputs may have further parts of its run. The value is None if a part is
        missing in this input, and event ids do not show whether another input has it."""
        ...

    def lacking_of(self, process: int) -> str | None:
        """Return the detail of the gap record about the missing end of a process's last run. Return "" or None as
        `EndingDecoder.lacking` does for the whole input, and None if the decoder does not remember the process."""
        ...


def packs(decoder: Decoder) -> TypeGuard[BlockDecoder]:
    """Return whether a decoder has a compiled kernel that packs events into blocks."""
    return _keeps(decoder, BlockDecoder)


def is_quick(decoder: Decoder) -> TypeGuard[QuickDecoder]:
    """Return whether a decoder has a fast path for records of the shape that occurs most often."""
    return _keeps(decoder, QuickDecoder)


def reads_files(decoder: Decoder) -> TypeGuard[FileDecoder]:
    """Return whether a decoder needs the path of the file that it reads."""
    return _keeps(decoder, FileDecoder)


def states_end(decoder: Decoder) -> TypeGuard[EndingDecoder]:
    """Return whether producers of the decoder's format write an end mark at the end of a stream."""
    return _keeps(decoder, EndingDecoder)


def asks(decoder: Decoder) -> TypeGuard[AskingDecoder]:
    """Return whether the decoder's events may have keys of names instead of the names."""
    return _keeps(decoder, AskingDecoder)


def asked_names(decoder: Decoder) -> Collection[str]:
    """Return the keys that decoded events contain in place of names, because the input has not defined the names so
    far."""
    return decoder.asked if asks(decoder) else ()


def settles(decoder: Decoder) -> TypeGuard[SettlingDecoder]:
    """Return whether a decoder can decode the last record before its terminator arrives."""
    return _keeps(decoder, SettlingDecoder)


def holds(decoder: Decoder) -> TypeGuard[HoldingDecoder]:
    """Return whether a decoder has state that grows with the input, and from which the caller can evict entries."""
    return _keeps(decoder, HoldingDecoder)


def separates(decoder: Decoder) -> TypeGuard[SeparatingDecoder]:
    """Return whether a decoder distinguishes the processes whose records are mixed in its input."""
    return _keeps(decoder, SeparatingDecoder)


_KEPT: dict[tuple[type, type], bool] = {}
"""Cache of the results of `isinstance`, by class of decoder and protocol. An uncached check takes 15 µs, and a session
needs several checks."""


def _keeps(decoder: Decoder, protocol: type) -> bool:
    key = (type(decoder), protocol)
    if key not in _KEPT:
        _KEPT[key] = isinstance(decoder, protocol)
    return _KEPT[key]


class Encoder(Protocol):
    """Turns the records of one session into bytes of their format. A decoder reads these bytes as the same records. An
    encoder does no I/O and raises nothing.

    Records come ordered by offset. If begin and end of a span are separate records in the input, the encoder gets two
    records. Each of them has all columns, all attributes and the flaw (broken rule) of the span.

    With `repair` (`Format.encoder`), an encoder leaves out records that other readers of the format refuse, and writes
    the missing ends of spans and streams. `added` counts the additions by kind."""

    @property
    def added(self) -> Mapping[str, int]: ...

    def encode(self, record: Record, /, *, following: Record | None) -> bytes | None:
        """Return bytes that a decoder reads as the same record. `following` is the next record, or None after the last
        record.

        Return empty bytes for a record that the decoder added to the producer's records. Return None for a record that
        the encoder leaves out."""
        ...

    def close(self) -> bytes | None:
        """Return the bytes to write after the last record. Without `repair`, return empty bytes.

        With `repair`, return the missing end of the stream. Return None if other readers of the format refuse the whole
        stream, so that the caller omits it."""
        ...


@runtime_checkable
class FileEncoder(Encoder, Protocol):
    """An encoder that needs the original path of the file. It also returns the documents that describe the stream, such
    as metadata files."""

    def begin(self, path: str, run: dict[str, Any]) -> None:
        """Take the original path of the session's file. The caller calls `begin` before the first record, and only for
        sessions of files.

        `run` is a dict that the encoders of all files of one `Files.group` share."""
        ...

    def documents(self) -> dict[str, bytes]:
        """Return the contents of the documents (such as metadata files) that describe the stream, by name
        (`Files.documents`).

        The caller calls `documents` after it has closed all streams of one `Files.group`. If two encoders return a
        document of the same name, the caller uses the first one."""
        ...


class Writer(NamedTuple):
    """The host and the PID of the process that writes a file, as the file's path names them."""

    host: str
    pid: int


def _unnamed(path: str) -> Writer | None:  # noqa: ARG001 - a path that names no process
    return None


def _alone(path: str) -> tuple[str, ...]:  # noqa: ARG001 - a stream without documents
    return ()


def _visible(path: str) -> bool:
    return not posixpath.basename(path).startswith(".")


def without_gz(path: str) -> str:
    """Return a path without the suffix `.gz`, which marks a compressed file."""
    return path.removesuffix(".gz")


_DERIVED = re.compile(
    r"""(?ix)
    \.(?P<hidden>.+)\.(?:sw[a-p]|[a-z0-9]{6})
    | (?P<before>.+?) (?: ~ | \.~\d+~ | \.\d+ | -\d{8} | [._-](?:bak|backup|old|orig|save?|copy|te?mp)\d*
        | \.(?:part|partial|filepart|crdownload|download|sw[a-p]) )
    | \#(?P<between>.+?)(?:\.\d+)?\#
    | (?:copy|backup)(?:[ ]\(\d+\))?[ ]of[ ](?P<behind>.+)
    | (?P<stem>.+?) (?: [ ]\([^()]*\) | [ _-]+(?:copy|old|orig|bak|backup)(?:[ ]?\(?\d+\)?)? ) (?P<suffix>\.[^ ]*)?
    """
)
"""Pattern of the names that editors, download tools, log rotation, file managers and people give to copies of a file. A
copy's name is the original name with an addition: after the name, around the name, before the name, or before the
suffix."""


def originals(path: str) -> list[str]:
    """Return the paths of the files of which the file at `path` may be a copy, according to its name. Paths are without
    `.gz`, and the most similar name comes first. The caller must compare the contents."""
    found: list[str] = []
    directory, name = posixpath.split(without_gz(path))
    while match := _DERIVED.fullmatch(name):
        name = without_gz("".join(filter(None, match.groups())))
        found.append(posixpath.join(directory, name))
    return found


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """The layout of a format's files in directories. Paths are absolute, with "/" as separator.

    `stream(path)`: whether the file name is a possible name of a stream.
    `documents(path)`: the paths of the documents (files that describe a stream, such as metadata files), relative to
    the stream's directory.
    `described(path)`: the path of the only stream that a document describes, otherwise "".
    `group(path)`: the group of a stream: the streams of one program execution, which share names and a clock.
    `copy(path)`: a key that is equal for a file and its moved or compressed copy. Two files with equal keys are one stream
        only if their first bytes are equal.
    `writer(path)`: the process that writes a stream, if the path names the process.
    `recognises(path, head)`: whether a file has this format, according to its first bytes (uncompressed, up to 4 KiB). A
        typical file name may relax the check of the bytes, but is never required.
    `pieces(path)`: whether the file's name is typical of a tool that splits traces. An import leaves out such a file if
        other files have all its lines. `pieces` is None if no tool splits traces of the format.
    `document_max`: the maximum size (bytes) of a document.
    """

    stream: Callable[[str], bool] = _visible
    documents: Callable[[str], tuple[str, ...]] = _alone
    described: Callable[[str], str] = lambda path: ""  # noqa: ARG005
    group: Callable[[str], str] = posixpath.dirname
    copy: Callable[[str], str] = without_gz
    writer: Callable[[str], Writer | None] = _unnamed
    recognises: Callable[[str, bytes], bool] = lambda path, head: False  # noqa: ARG005
    pieces: Callable[[str], bool] | None = None
    document_max: int = 4 * 2**20

    @property
    def has_own_names(self) -> bool:
        """Return whether a format's streams have file names that no other files have."""
        return self.stream is not _visible

    @property
    def has_documents(self) -> bool:
        return self.documents is not _alone


class Acknowledgement(msgspec.Struct, frozen=True):
    """The collector's answer to a client about its announced session (clients/PROTOCOL.md, `tailrace.ack`).

    `streams`: for each stream, a sequence number. Each event with a lower number is durable, in `holes` or given up.
    `holes`: ranges of missing events, as stream, first sequence number and number of events.
    `given_up`: for each stream, the number of missing events that the collector no longer requests.
    `uncounted`: the streams with an unknown number of missing events.
    `turn`: the number of the client's last request for a complete acknowledgement (see `Announcement`). Sequence
        numbers have 32 bits, as on the wire."""

    session: str
    turn: int
    streams: dict[str, int]
    holes: list[tuple[str, int, int]]
    goodbye: bool
    given_up: dict[str, int] = {}
    uncounted: list[str] = []


class Waiting(Protocol):
    """The part of a decoder's state that holds the bytes of an unfinished record."""

    waiting: bytes


def _itself(state: Any) -> Waiting:  # noqa: ANN401 - has the format's own type
    return state  # type: ignore[no-any-return]


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of a format that the rest of Tailrace needs. Each package in `formats` exports a `Format` as
    FORMAT.

    `transports`: the types of source that can carry the format; at least files (`tail`).
    `decoder(limit, state)`: create a decoder with a maximum record size of `limit` bytes. The decoder starts fresh if `state`
        is None, or continues from a `state` of type `state_type`.
    `counter_bits`: the width (bits) of the producer's sequence numbers, or None if events have no sequence numbers.
        Otherwise, all records besides gaps, heals, session records and malformed records have a `counter`.
    `whole(data, sizes, first, begin)`: the number of consecutive datagrams, from index `first` on, that contain only whole
        events, so that the datagrams may be decoded in one piece. `data` has all datagrams, one after the other, and
        `sizes` has their sizes. `begin` is the position of datagram `first` in `data`.
    `flaws`, `malformed`: all flaws that readable records of the format can have, and all reasons of malformed records.
    `files`: the layout of the format's files.
    `dialects`: the values of a source's `dialect` besides "auto".
    `waiting(state)`: the part of a decoder's state whose attribute `waiting` has the bytes of an unfinished record. A
        checkpoint may omit these bytes, because the spool has them, too.
    `acknowledge`: a function that encodes an answer to a client, or None if the format has no answers.
    `encoder(repair)`: create an encoder for one session. `repair` is explained in `Encoder`. `encoder` is None if
        records cannot be turned back into bytes.
    `suffix`: the suffix of an encoded file if the session had no file.
    `compresses`: whether producers of the format compress files themselves.
    """

    name: str
    decoder: Callable[[int, Any], Decoder]
    state_type: type[msgspec.Struct]
    flaws: frozenset[str]
    malformed: frozenset[str]
    transports: tuple[str, ...] = ("tail",)
    counter_bits: int | None = None
    whole: Callable[[bytes, tuple[int, ...], int, int], int] | None = None
    files: Files = Files()
    dialects: tuple[str, ...] = ()
    waiting: Callable[[Any], Waiting] = _itself
    acknowledge: Callable[[Acknowledgement], bytes] | None = None
    encoder: Callable[[bool], Encoder] | None = None
    suffix: str = ""
    compresses: bool = False

    def recognises_datagram(self, datagram: bytes, limit: int) -> bool:
        """Return whether a datagram has at least one readable record of at most `limit` bytes."""
        decoder = self.decoder(limit, None)
        records = decoder.feed(datagram) + decoder.end()
        return any(record.size and record.kind != Kind.MALFORMED for record in records)
