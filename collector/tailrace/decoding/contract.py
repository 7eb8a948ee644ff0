"""The contract between the bytes of a source and the rest of Tailrace.

A decoder turns bytes into records: it reads no clock, does no I/O, logs nothing and raises nothing.
Every format keeps three promises, which one suite (`tests/decoding/test_conformance.py`) checks:

1. How the bytes are cut into `feed` calls never changes the records; where the input rests may (`SettlingDecoder`).
2. Records *tile* the input: sorted by offset, each begins where the one before it ended; nothing is
   skipped, nothing is read twice. Events that a producer writes late (ovni) may stand in the order of their clocks. Bytes that cannot be read are a malformed record with a reason.
   Records of size 0 may stand in between, for facts that follow from the bytes so far (missing events,
   a name that is known only now).
3. No input raises.

Everything that a decoder must remember between calls is in `state`, a msgspec struct that survives
`msgspec.msgpack` unchanged: a checkpoint stores it and a restarted daemon continues from it.
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
    """A decoder of one session's bytes, in order, to records. `state` is None at first."""

    @property
    def state(self) -> msgspec.Struct: ...

    @property
    def pending(self) -> int:
        """How many bytes `feed` took that no record covers yet."""
        ...

    def feed(self, data: bytes, /) -> list[Record]:
        """Decode the records that `data` completes, in order."""
        ...

    def end(self) -> list[Record]:
        """Decode what is left: the input is over or, for datagrams, no record can continue past this point.

        The decoder can be fed again afterwards; offsets go on."""
        ...

    def give_up(self) -> list[Record]:
        """Return what is pending as records, malformed as `too_long` where it is part of a record.

        Called when memory is short. The rest of that record is unreadable as well, as it is for a record over
        `limit`. An empty list means that the few pending bytes cannot be told apart yet."""
        ...


@runtime_checkable
class BlockDecoder(Decoder, Protocol):
    """A decoder with a kernel, which packs events of the usual shape into blocks."""

    def blocks(self, data: bytes, /) -> list[Block | Record]:
        """Decode what `data` completes, in order. The blocks' records and the records between them are
        those that `feed` would return, but the rows of several processes in turn may be one behind the other."""
        ...


@runtime_checkable
class QuickDecoder(Decoder, Protocol):
    """A decoder with a quick way for usual records."""

    def take_slow(self) -> int:
        """Return how many records were read the slow way, one by one, since the last call."""
        ...


@runtime_checkable
class FileDecoder(Decoder, Protocol):
    """A decoder that wants to know which file it reads, and the documents beside the file."""

    def begin(self, path: str, dialect: str) -> None:
        """Take the file's path before the first byte; called only for sessions of files.

        `path` is absolute and may be the path of a compressed file; `dialect` is one of the format's
        `dialects`, or "auto"."""
        ...

    def document(self, name: str, data: bytes, /) -> list[Record]:
        """Read a document of this stream that was found or has changed.

        `name` is one of `Files.documents`. `data` is the whole content, which may be empty or half-written.
        Return records of size 0 at the offset that the stream has reached. Documents may come before or
        after any byte."""
        ...


@runtime_checkable
class EndingDecoder(Decoder, Protocol):
    """A decoder of streams that state their end, so that a missing end means something."""

    @property
    def stream(self) -> str:
        """The stream whose end is meant, "" for the whole session."""
        ...

    @property
    def lacking(self) -> str | None:
        """The part of the end that is missing so far, as the detail of the gap that `end` would return; "" when nothing
        is missing, None while it is unknown whether the stream will state its end."""
        ...


@runtime_checkable
class AskingDecoder(Decoder, Protocol):
    """A decoder whose events ask for names (see `model.record.NAME_OF_ROW`)."""

    @property
    def asked(self) -> Collection[str]:
        """The keys that events ask for and that this input has not named so far. With "", there are more."""
        ...


@runtime_checkable
class SettlingDecoder(Decoder, Protocol):
    """A decoder of records that end with a terminator, such as a newline, which a writer may omit after the last
    record."""

    def settle(self) -> list[Record]:
        """Decode the waiting bytes if they are a whole record, because no more bytes are expected for now.

        No bytes that come later may be able to change that record. If its terminator comes later, the terminator is a
        record of its own."""
        ...


@runtime_checkable
class HoldingDecoder(Decoder, Protocol):
    """A decoder with state, besides unfinished records, that grows with its input.

    How bytes are cut still does not change the records, unless state is evicted in between."""

    @property
    def holdings(self) -> Sequence[Holding]:
        """The containers of its state as they are now."""
        ...


@runtime_checkable
class SeparatingDecoder(HoldingDecoder, Protocol):
    """A decoder that tells apart the processes of its input, and may forget some when its state is evicted."""

    @property
    def processes(self) -> Collection[int]:
        """The numbers of the processes that may have further records."""
        ...

    @property
    def pieces(self) -> Mapping[int, RunPiece | None]:
        """By process, the part that the input has of its last run, where more of the run may exist. None: its ids prove
        nothing, so no other input can be known to have the rest."""
        ...


def packs(decoder: Decoder) -> TypeGuard[BlockDecoder]:
    """Return whether a decoder packs events into blocks."""
    return _keeps(decoder, BlockDecoder)


def is_quick(decoder: Decoder) -> TypeGuard[QuickDecoder]:
    """Return whether a decoder has a quick way for usual records."""
    return _keeps(decoder, QuickDecoder)


def reads_files(decoder: Decoder) -> TypeGuard[FileDecoder]:
    """Return whether a decoder wants to know its file."""
    return _keeps(decoder, FileDecoder)


def states_end(decoder: Decoder) -> TypeGuard[EndingDecoder]:
    """Return whether a missing end of a decoder's stream means something."""
    return _keeps(decoder, EndingDecoder)


def asks(decoder: Decoder) -> TypeGuard[AskingDecoder]:
    """Return whether a decoder's events ask for names."""
    return _keeps(decoder, AskingDecoder)


def settles(decoder: Decoder) -> TypeGuard[SettlingDecoder]:
    """Return whether a decoder can decode a last record before its end has come."""
    return _keeps(decoder, SettlingDecoder)


def holds(decoder: Decoder) -> TypeGuard[HoldingDecoder]:
    """Return whether a decoder has state that grows."""
    return _keeps(decoder, HoldingDecoder)


def separates(decoder: Decoder) -> TypeGuard[SeparatingDecoder]:
    """Return whether a decoder tells processes apart."""
    return _keeps(decoder, SeparatingDecoder)


_KEPT: dict[tuple[type, type], bool] = {}
"""Whether a class of decoders keeps a protocol: Python takes 15 µs to find out, for each new session several times."""


def _keeps(decoder: Decoder, protocol: type) -> bool:
    key = (type(decoder), protocol)
    if key not in _KEPT:
        _KEPT[key] = isinstance(decoder, protocol)
    return _KEPT[key]


class Encoder(Protocol):
    """Writes the records of one session as bytes of their format, which a decoder reads as the same records.

    An encoder does no I/O and raises nothing. Records come in the order of their offsets. A span that a record of its
    own ended comes as two, a begin and an end, each with all columns and attributes of the span, flaws among them.

    An encoder that repairs leaves out what the format's readers refuse, and closes what is open. `added` counts what
    it wrote that the producer did not write, by what that is."""

    @property
    def added(self) -> Mapping[str, int]: ...

    def encode(self, record: Record, /, *, following: Record | None) -> bytes | None:
        """Return bytes that decode to the same record. `following` is the next one, None if none follows.

        Return nothing for a record that the producer did not write, and None for a record that the repair leaves out."""
        ...

    def close(self) -> bytes | None:
        """Return what the trace lacks at its end; nothing without a repair. None: a repair leaves the whole stream out,
        since readers refuse it."""
        ...


@runtime_checkable
class FileEncoder(Encoder, Protocol):
    """An encoder that wants to know which file it writes, and that writes the documents beside the file."""

    def begin(self, path: str, run: dict[str, Any]) -> None:
        """Take the path that the file had, before the first record; called only for sessions of files.

        `run` is what the encoders of one group of files tell one another."""
        ...

    def documents(self) -> dict[str, bytes]:
        """Return the documents beside the stream, by the names that `Files.documents` gives them. Called once all
        encoders of the group have closed their streams. Where two of them return one document, the first counts."""
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
    """Return the name that a file and its compressed form have in common."""
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
"""The names that editors, download tools, log rotations, file managers and people give to a copy: behind the original's name,
around it, before it, or before its suffix."""


def originals(path: str) -> list[str]:
    """Return the paths of files of which this one may be a copy by its name, the nearest first, without `.gz`. Only contents
    tell whether it is one."""
    found: list[str] = []
    directory, name = posixpath.split(without_gz(path))
    while match := _DERIVED.fullmatch(name):
        name = without_gz("".join(filter(None, match.groups())))
        found.append(posixpath.join(directory, name))
    return found


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """How a format's streams lie in directories. Paths are absolute, with "/" between their parts.

    `stream`: whether a file has the name of a stream.
    `documents`: the files that describe a stream, relative to its directory.
    `group`: the run that a stream belongs to; streams of one group share names and a clock.
    `copy`: the same for two files of which one may be a moved or compressed copy of the other; they count
        as one stream only if their first bytes are equal, too.
    `writer`: the process that writes a stream, where its path names one.
    `recognises`: whether a file is of this format, by its first bytes (uncompressed, up to 4 KiB). The name of a stream may
        lower what is asked of them, but no name is asked for.
    `pieces`: whether a file has a name that a tool gives to pieces of other traces, None where no tool cuts traces. An import that has all their lines leaves
        such a file out.
    `document_max`: the longest document that is read, in bytes.
    """

    stream: Callable[[str], bool] = _visible
    documents: Callable[[str], tuple[str, ...]] = _alone
    group: Callable[[str], str] = posixpath.dirname
    copy: Callable[[str], str] = without_gz
    writer: Callable[[str], Writer | None] = _unnamed
    recognises: Callable[[str, bytes], bool] = lambda path, head: False  # noqa: ARG005
    pieces: Callable[[str], bool] | None = None
    document_max: int = 4 * 2**20

    @property
    def has_documents(self) -> bool:
        return self.documents is not _alone


class Acknowledgement(msgspec.Struct, frozen=True):
    """The collector's answer to a client about its announced session (clients/PROTOCOL.md, `tailrace.ack`).

    `streams`: for each stream a number; every event below it is durable, in `holes` (stream, first number,
        how many), or given up. `given_up`: how many events of a stream are missing and no longer asked for.
    `uncounted`: streams whose missing events nobody knows. `turn`: the turn of the client's last
        announcement. All numbers are as on the wire."""

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
    """The facts about a format that the rest of Tailrace needs. Each package in `formats` exports one as FORMAT.

    `transports`: the types of source that can carry it; at least files (`tail`).
    `decoder(limit, state)`: make a decoder whose longest record is `limit` bytes; it starts fresh for None,
        or continues from a `state` decoded as `state_type`.
    `counter_bits`: the width of the producer's per-stream counter, None where it has none.
    `whole(data, sizes, first, begin)`: how many datagrams, from the one at index `first` on, hold whole events and
        nothing else, so that they may be decoded in one piece. All datagrams have `sizes`, and lie one behind the
        other in `data`; the first of them is at `begin`.
    `flaws`, `malformed`: the closed sets of reasons that its records may carry.
    `files`: how its files are found. `dialects`: the values, beside "auto", of a source's `dialect`.
    `waiting`: the part of a state that holds the bytes of an unfinished record as its `waiting`; a
        checkpoint may leave these bytes out and read them from the spool again.
    `acknowledge`: the bytes of an answer to a client, for formats that have answers.
    `encoder(repair)`: make an encoder for one session; None where records do not tell what the producer wrote. `suffix`
        is that of its file if the session had none.
    `compresses`: its producers compress files themselves, and its readers may want it.
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
        """Return whether a datagram has a readable record of at most `limit` bytes."""
        decoder = self.decoder(limit, None)
        records = decoder.feed(datagram) + decoder.end()
        return any(record.kind != Kind.MALFORMED for record in records)
