"""All that the ingest remembers, as data that a checkpoint can hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar
from zlib import crc32

import msgspec

from tailrace.config.schema import LedgerConfig
from tailrace.ingest.departures import Departure
from tailrace.ledger.commons import CommonsState
from tailrace.ledger.findings import Account
from tailrace.ledger.gap_rows import StreamRows
from tailrace.ledger.references import ReferencesState
from tailrace.ledger.stream import CountersState, Marks
from tailrace.model.gap import Reason
from tailrace.normalize import ForgottenSpans, OpenSpan

T = TypeVar("T")

VERSION = 5
"""Of the state: its structs, those of the decoders' states, and the spool's entries. It rises by one
with the first change after a release, together with a step in `upgrade`."""


HEAD, LAST = 256, 64
"""Bytes of a file kept to know it again: its first ones, and those before the place reached."""

UNSAYING = 2
"""First bytes that may change in one and the same file."""


def checksum(crc: int, data: bytes, offset: int) -> int:
    """Return the CRC-32 of a file's content with these bytes, which begin at `offset`. The first
    `UNSAYING` bytes are left out."""
    return crc32(data[UNSAYING - offset :] if offset < UNSAYING else data, crc)


class Member(msgspec.Struct, frozen=True, array_like=True):
    """A place of a compressed file from which it can be inflated: in its own bytes, and in its content."""

    raw: int
    content: int


class Rest(msgspec.Struct, frozen=True, kw_only=True):
    """A file does not grow, as far as can be told.

    process_gone: the process that wrote it is seen no more. silent: it has not grown for longer than
    the source's `rest_time`. waits: neither has it, and the process that writes it lives. ended: its
    stream had said its end when the daemon stopped."""

    why: Literal["process_gone", "silent", "waits", "ended"]
    since: int
    """When it was written last (Unix ns)."""


class FileFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Payload of a FILE entry, and part of a file's OPEN entry: which file a session reads."""

    path: str
    device: int
    inode: int
    birth: int
    """When it was made (Unix ns); 0 where the system does not say."""
    member: Member | None = None
    """None for a file that is not compressed."""
    rest: Rest | None = None
    """None for a file that grows, or may."""


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """Payload of a LOSS entry: bytes that a session lacks, or has and cannot use.

    hole: a part of the file that nobody wrote. bad_member: compressed bytes that cannot be inflated;
    they are in `data`. torn_member: compressed bytes end before their member does; what they held is
    in the content, what is missing nobody knows. overwritten: bytes that were read have changed
    since. unread: bytes that were there and are gone before they could be read. shed: datagrams of
    peers that were too many at a time.
    """

    detail: Literal["hole", "bad_member", "torn_member", "overwritten", "unread", "shed"]
    size: int
    """How many bytes, 0 where nobody knows; of compressed bytes, as they are in the file."""
    data: bytes = b""

    @property
    def reason(self) -> Reason:
        reasons = {"bad_member": Reason.MALFORMED, "shed": Reason.SHED}
        return reasons.get(self.detail, Reason.TRUNCATED)

    @property
    def skip(self) -> int:
        """How far the place in the file's content moves."""
        return self.size if self.detail == "hole" else 0


class DropCount(msgspec.Struct, frozen=True, kw_only=True):
    """Payload of a DROPS entry: at a source's socket the kernel dropped `count` more datagrams, since
    a time (Unix ns). The entry comes before those of the datagrams that were read with it."""

    source: str
    count: int
    since: int
    socket: int = 0
    """The kernel's number of the socket."""
    total: int = 0
    """The kernel's count then, of all the socket's life; it wraps at 2^32."""


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """Payload of a HEARTBEAT entry: a life of the daemon is there, and counts that it is."""

    session: str
    """Drawn for this life."""
    number: int
    about: dict[str, float]
    """Attributes of its row."""


class FileState(msgspec.Struct):
    """How far a session's file has been read; what a source needs to go on with it."""

    facts: FileFacts
    offset: int = 0
    """Of the next byte of its content: inflated, holes counted."""
    head: bytes = b""
    last: bytes = b""
    documents: dict[str, int] = {}
    """CRC-32 of each document as it was read last."""
    part: bytes = b""
    """The beginning of a document whose other parts are yet to come."""
    crc: int | None = None
    """`checksum` of its content without its holes; None where an earlier version read some of it."""

    def read(self, data: bytes) -> None:
        """Take the next bytes of its content."""
        if self.crc is not None:
            self.crc = checksum(self.crc, data, self.offset)
        self._go_on(data)

    def pass_over(self, size: int) -> None:
        """Take a hole of this size, which reads as zeros."""
        self._go_on(bytes(min(size, HEAD)))
        self.offset += size - min(size, HEAD)

    def _go_on(self, data: bytes) -> None:
        self.offset += len(data)
        if len(self.head) < HEAD:
            self.head = (self.head + data)[:HEAD]
        self.last = data[-LAST:] if len(data) >= LAST else (self.last + data)[-LAST:]


class OpenInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Payload of an OPEN entry: a session begins. `session` is its drawn id; the limits are those
    of the configuration then, since a replay must not depend on today's."""

    source: str
    format: str
    session: str
    transport: str
    peer: str
    record_max: int
    garbage_max: int = 0
    ledger: LedgerConfig
    pending_max: int = 0
    """Bytes of unfinished records that all sessions of the source may hold together; 0 for any number."""
    file: FileFacts | None = None
    group: str = ""
    """What streams with common names have in common; "" for none."""
    dialect: str = "auto"
    replaces: tuple[str, ...] = ()
    """Sessions that read the beginning of this file, or an incomplete copy of it: the views leave them
    out once this one is closed."""


class Tally(msgspec.Struct, omit_defaults=True):
    """One source's sums since its first entry: bytes as received, records and events by fate.

    received = decoded + malformed + pending (bytes); expected = seen + missing - duplicates (events).
    """

    received: int = 0
    decoded: int = 0
    malformed: int = 0
    rows: int = 0
    records: dict[str, int] = {}
    flaws: dict[str, int] = {}
    malformed_records: dict[str, int] = {}
    gaps: dict[str, int] = {}
    heals: dict[str, int] = {}
    gave_way: int = 0
    """Unfinished records given up because those of the source together were too many bytes."""
    unknown_gaps: int = 0
    """Gaps of which nobody knows the size."""
    restarts: int = 0
    opened: int = 0
    closed: int = 0
    evicted: dict[str, int] = {}
    """What sessions gave up to keep the bounds on memory: entries by kind."""
    events: Account = msgspec.field(default_factory=Account)
    """Those of runs that are over; runs in being add theirs."""

    @property
    def said_missing(self) -> int:
        """How many events the gap rows made so far say are missing, net of the heals."""
        return sum(self.gaps.values()) - sum(self.heals.values())


class RunState(msgspec.Struct, omit_defaults=True):
    """One incarnation of a session's producer."""

    name: str
    id: str = ""
    """Of the session that its client announced; "" where it announced none."""
    reached: int = 0
    """Where in its bytes it is: those of all its connections, one after the other."""
    records: int = 0
    began: int = 0
    """When its first record came (Unix ns)."""
    epoch: int | None = None
    clock: str | None = None
    ticks_per_second: float | None = None
    ended: str = ""
    """Why it is over, if it is and only waits for what is late."""
    ended_at: int = 0
    """Since when (Unix ns)."""
    goodbye_at: int = 0
    """When its client said that nothing more will come (Unix ns)."""
    counters: CountersState = msgspec.field(default_factory=CountersState)
    references: ReferencesState = msgspec.field(default_factory=ReferencesState)
    spans: dict[int, OpenSpan] = {}
    forgotten_spans: ForgottenSpans = msgspec.field(default_factory=ForgottenSpans)
    gap_rows: dict[str, StreamRows] = {}
    lead: int | None = None
    """How far the producer's clock is ahead of ours (ns), its zero taken for 0; see `lead`."""
    lead_at: int = 0
    """When that was so (Unix ns)."""
    continues: list[str] = []
    """Earlier sessions whose streams go on in this one."""
    elsewhere: dict[str, str] = {}
    """By stream that begins above zero, an earlier session that may have the numbers before."""
    unended: tuple[int, str] | None = None
    """Where the last unreadable piece ended and why it is one, if its line may go on there."""


class AnnouncedState(msgspec.Struct, omit_defaults=True):
    """A session that its client announced: one run, by whichever connections it comes."""

    run: RunState
    info: OpenInfo
    """Of the connection by which it came first."""
    carriers: list[int] = []
    """Numbers of the connections that it comes by, or may still come by."""
    voice: int | None = None
    """The connection that announced it last."""
    bearer: int | None = None
    """The connection that brought its last bytes."""
    left: int = 0
    """Since when no connection carries it (Unix ns)."""
    ended: bool = False
    """Whether it was said to be over; its numbers are still known."""
    turn: int = 0
    acknowledge: bool = False


class SessionState(msgspec.Struct, omit_defaults=True):
    """One producer, whose runs are named after the session and `restarts`."""

    number: int
    info: OpenInfo
    run: RunState | str
    """Or the id of the announced session whose run it is."""
    previous: RunState | str | None = None
    """The run before this one, while events of it may still come."""
    base: int = 0
    """What is added to places in its bytes to make them places in those of its run."""
    epochs: dict[int, str] = {}
    """The runs' epochs, with the runs' names."""
    restarts: int = 0
    doubt: str = ""
    """Why a new run has begun of which no event has shown yet that it is not the one before."""
    last: int = 0
    """When its last entry came (Unix ns)."""
    received: int = 0
    """Bytes that came in it."""
    record_since: int = 0
    """When the record that is not whole yet began to come (Unix ns); 0 when none is."""
    file: FileState | None = None
    """Of the sessions of files."""
    skipped: int = 0
    """Bytes of holes passed over, which the decoder does not count."""
    garbage: int = 0
    """Malformed bytes since the last readable record."""
    copies: dict[bytes, tuple[int, int]] = {}
    """The newest datagrams of a producer that numbers nothing; see `ledger.copies`."""
    quarantined: int = 0
    """Bytes of its quarantine file."""
    decoder: bytes | None = None
    """The decoder's own state, encoded; only in a checkpoint."""
    begun: int = 0
    """Position in the spool: the bytes of the unfinished record are not below it; 0 while there is none."""
    left_out: int = 0
    """How many bytes of the unfinished record the checkpoint leaves to the spool."""
    waiting: bytes = b""
    """These bytes, read again from the spool; never in a checkpoint."""

    @property
    def place(self) -> int:
        """Return how far its bytes go."""
        return self.file.offset if self.file else self.received


class IngestState(msgspec.Struct):
    version: int = VERSION
    position: int = 0
    """All entries below this position of the spool are in this state."""
    now: int = 0
    """The time of the last of them (Unix ns)."""
    tallies: dict[str, Tally] = {}
    commons: dict[str, CommonsState] = {}
    """By source."""
    sessions: dict[int, SessionState] = {}
    announced: dict[str, dict[str, AnnouncedState]] = {}
    """By source and id; among those without a connection, the one that left first is first."""
    departures: dict[str, list[Departure]] = {}
    """By source, the sessions that ended without having been announced."""
    ahead: int = 0
    """How far the wall clock is ahead of the log's time (ns)."""
    heartbeats: RunState | None = None
    """The daemon's own stream, while it or an earlier life of it has one."""


def encode(value: object) -> bytes:
    return msgspec.msgpack.encode(value, enc_hook=_plain)


def decode(data: bytes, type_: type[T]) -> T:
    return msgspec.msgpack.decode(data, type=type_, dec_hook=_typed)


def _plain(value: object) -> float | bytes:
    """`Size` and `Duration` as the numbers they are, `Marks` as their bytes."""
    if isinstance(value, Marks):
        return value.tobytes()
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    raise TypeError(f"no place in a checkpoint for {type(value)}")


def _typed(type_: Callable[[object], object], value: object) -> object:
    return type_(value)
