"""Define the ingest state that a checkpoint holds, and the upgrade steps from the states of earlier versions.

An upgrade step is a pure function on decoded msgpack values: dicts, lists and numbers. The struct classes of the
earlier version no longer exist. A new field with a default needs no step. The new field still needs a new version, so
that an older ingest rejects the state. No upgrade step exists yet, because nothing was released.

Spool entries need no upgrade steps: the fields of their payloads are never renamed or dropped, and new fields have
defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import msgspec

from tailrace.ingest.spans import ForgottenSpans, OpenSpan
from tailrace.ledger.bounds import CommonsState
from tailrace.ledger.findings import Account, StreamRows
from tailrace.ledger.references import ReferencesState
from tailrace.ledger.split_runs import SplitRunsState
from tailrace.ledger.stream import CountersState, Marks
from tailrace.spool.payloads import FileState, OpenInfo

T = TypeVar("T")

VERSION = 1
"""Version of the state: its structs, the decoders' states and the spool's entries. The first change after a release
increments the version and adds an upgrade step to `STEPS`."""


class Tally(msgspec.Struct, omit_defaults=True):
    """Sums of one source since its first spool entry: received bytes, and records and events by outcome.

    received = decoded + malformed + pending (bytes); expected = seen + missing - duplicates (events). The encoded field
    names are the names in /status and in the metrics (`daemon.status`)."""

    received: int = msgspec.field(default=0, name="received_bytes")
    decoded: int = msgspec.field(default=0, name="decoded_bytes")
    malformed: int = msgspec.field(default=0, name="malformed_bytes")
    rows: int = 0
    records: dict[str, int] = {}
    flaws: dict[str, int] = {}
    malformed_records: dict[str, int] = {}
    gaps: dict[str, int] = msgspec.field(default_factory=dict, name="gap_events")
    heals: dict[str, int] = msgspec.field(default_factory=dict, name="heal_events")
    gave_way: int = 0
    """Number of unfinished records that were dropped because the source's sessions held too many unfinished bytes."""
    unknown_gaps: int = 0
    """Number of unhealed gaps of unknown size."""
    restarts: int = 0
    opened: int = msgspec.field(default=0, name="sessions_opened")
    closed: int = msgspec.field(default=0, name="sessions_closed")
    evicted: dict[str, int] = {}
    """Number of entries, by kind, that sessions dropped to respect the memory limits."""
    events: Account = msgspec.field(default_factory=Account)
    """Counts of the events of finished incarnations. Each live incarnation has its own account."""

    @property
    def said_missing(self) -> int:
        """Return the number of events that the gap rows so far report as missing, minus the healed events."""
        return sum(self.gaps.values()) - sum(self.heals.values())


class IncarnationState(msgspec.Struct, omit_defaults=True):
    """State of one incarnation of a session's producer."""

    name: str
    id: str = ""
    """Id of the announced session that the incarnation belongs to; "" where no client announced the incarnation."""
    reached: int = 0
    """Number of bytes received so far for the incarnation, over all its connections."""
    records: int = 0
    began: int = 0
    """Time (Unix ns) at which the first record arrived."""
    epoch: int | None = None
    clock: str | None = None
    ticks_per_second: float | None = None
    ended: str = ""
    """Reason of the end, for an incarnation that only waits for late events."""
    ended_at: int = 0
    """Time (Unix ns) at which the incarnation ended."""
    goodbye_at: int = 0
    """Time (Unix ns) at which the client's goodbye was complete, or at which a footer arrived that no record has followed."""
    goodbye_parts: bytes = b""
    """Bit set of the received goodbye parts: bit n for part n, lowest bits first."""
    goodbye_last: int | None = None
    """Number of the last part of the goodbye; None until the last part arrives."""
    counters: CountersState = msgspec.field(default_factory=CountersState)
    references: ReferencesState = msgspec.field(default_factory=ReferencesState)
    spans: dict[int, OpenSpan] = {}
    forgotten_spans: ForgottenSpans = msgspec.field(default_factory=ForgottenSpans)
    gap_rows: dict[str, StreamRows] = {}
    lead: int | None = None
    """Lead (ns) of the producer's clock over the log's time, with the clock's zero taken as 0; see `clocks.Lead`."""
    lead_at: int = 0
    """Time (Unix ns) at which the lead was measured."""
    heard_at: int = 0
    """Time (Unix ns) at which the producer's clock was last observed."""
    heard_times: int = 0
    """Number of distinct arrival times at which the producer's clock was observed."""
    continues: list[str] = []
    """Names of the earlier sessions whose streams continue in this incarnation."""
    elsewhere: dict[str, str] = {}
    """Earlier session that may contain the numbers below a stream's first number, by stream."""
    times: tuple[int, int] | None = None
    """First and latest event ticks, kept for a producer whose run may be spread over several files."""
    unended: tuple[int, str] | None = None
    """End offset and flaw of the last unreadable piece, if the unreadable line may continue at that offset."""


class AnnouncedState(msgspec.Struct, omit_defaults=True):
    """State of a session that a client announced: one incarnation, over any number of connections."""

    incarnation: IncarnationState = msgspec.field(name="run")
    info: OpenInfo
    """Opening information of the first connection."""
    carriers: list[int] = []
    """Numbers of the connections that carry the session, or whose late datagrams may still belong to the session."""
    voice: int | None = None
    """Number of the connection that announced the session last. Acknowledgements go to this connection."""
    bearer: int | None = None
    """Number of the connection that delivered the last bytes."""
    left: int = 0
    """Time (Unix ns) at which the last connection closed."""
    ended: bool = False
    """Whether the row of the session's end is written. The sequence numbers of an ended session are still kept."""
    turn: int = 0
    acknowledge: bool = False


class Departure(msgspec.Struct, array_like=True):
    """State of an ended session: how far each stream had advanced."""

    session: str
    host: str
    left: int
    """Time (Unix ns) at which the session ended, plus the time during which no daemon ran."""
    epoch: int | None
    streams: dict[str, tuple[int, int]]
    """Next number and the mark of the last event, by stream."""
    cut: list[str] = []
    """Streams of a broken connection that no later session has continued yet. The session's gap of unknown size heals
    when later sessions have continued all these streams."""


class SessionState(msgspec.Struct, omit_defaults=True):
    """State of one session and of its producer's incarnations. The names of incarnations consist of the session's name
    and `restarts`."""

    number: int
    info: OpenInfo
    current: IncarnationState | str = msgspec.field(name="run")
    """State of the current incarnation, or the id of the announced session that the current incarnation belongs to."""
    process: int = 0
    """Number of the process that wrote the current incarnation, in an input of several processes."""
    aside: dict[int, IncarnationState] = {}
    """Current incarnations of the other processes, by process number."""
    previous: IncarnationState | str | None = None
    """Previous incarnation, while late events of the previous incarnation may still arrive."""
    base: int = 0
    """Difference (bytes) between an offset in the session's input and the offset in the current incarnation's bytes."""
    epochs: dict[int, str] = {}
    """Names of incarnations, by epoch."""
    restarts: int = 0
    doubt: str = ""
    """Reason why the current incarnation began, as long as no event has shown that the incarnation is new."""
    last: int = 0
    """Time (Unix ns) of the last spool entry."""
    received: int = 0
    """Number of received bytes."""
    record_since: int = 0
    """Time (Unix ns) at which the unfinished record began to arrive; 0 without an unfinished record."""
    file: FileState | None = None
    """File that the session reads; None for a session without a file."""
    skipped: int = 0
    """Number of bytes that the decoder did not receive: holes, and duplicate datagrams."""
    refusing: bool = False
    """Whether the peer began too many sessions, so that the ingest refuses its further bytes."""
    garbage: int = 0
    """Number of malformed bytes since the last readable record."""
    copies: dict[bytes, tuple[int, int]] = {}
    """Newest datagrams of a producer without sequence numbers; see `ledger.copies`."""
    quarantined: int = 0
    """Size (bytes) of the session's quarantine file."""
    head: bytes | None = None
    """First bytes of the input, until the ingest can decide whether the content is foreign."""
    foreign: str = ""
    """Kind of foreign content, a key of `foreign.FOREIGN`; "" for content that the decoder can read."""
    decoder: bytes | None = None
    """Encoded state of the decoder; set only in a checkpoint."""
    begun: int = 0
    """Spool position at or below the first byte of the unfinished record; 0 without an unfinished record."""
    left_out: int = 0
    """Number of bytes of the unfinished record that the checkpoint omits because the spool holds them."""
    waiting: bytes = b""
    """Omitted bytes of the unfinished record, read again from the spool; never set in a checkpoint."""

    @property
    def place(self) -> int:
        """Return the offset (bytes) that the session's input has reached."""
        return self.file.offset if self.file else self.received


class DamageState(msgspec.Struct, omit_defaults=True):
    """Number of log bytes that the disk lost and that no row reports yet."""

    lacking: dict[str, int] = {}
    """Number of bytes that a session may lack, by the number of an open session, or by the source and id of an
    announced session."""
    of_heartbeats: int = 0
    """Number of bytes that the daemon's own stream may lack."""
    unsaid: int = 0
    """Number of lost bytes that every session will report as soon as a session exists."""

    def add(self, other: DamageState) -> None:
        for key, size in other.lacking.items():
            self.lacking[key] = self.lacking.get(key, 0) + size
        self.of_heartbeats += other.of_heartbeats
        self.unsaid += other.unsaid


class IngestState(msgspec.Struct):
    version: int = VERSION
    position: int = 0
    """Spool position up to which the state includes all entries."""
    now: int = 0
    """Time (Unix ns) of the last entry."""
    tallies: dict[str, Tally] = {}
    commons: dict[str, CommonsState] = {}
    """State shared by the ledgers of a source, by source."""
    sessions: dict[int, SessionState] = {}
    announced: dict[str, dict[str, AnnouncedState]] = {}
    """Announced sessions, by source and id. Sessions without a connection are ordered by the time at which their last
    connection closed."""
    departures: dict[str, list[Departure]] = {}
    """Ended sessions that no client announced, by source."""
    ahead: int = 0
    """Lead (ns) of the wall clock over the log's time."""
    heartbeats: IncarnationState | None = None
    """State of the daemon's own stream, if this or an earlier run of the daemon has opened the stream."""
    damage: DamageState = msgspec.field(default_factory=DamageState)
    beginnings: dict[str, dict[str, int]] = {}
    """Time (ns) at which a host may again begin one second's quota of sessions at once, by source and host; see
    `limits.Beginnings`."""
    pieces: dict[str, SplitRunsState] = {}
    """Runs that are spread over several files, by source."""


def encode(value: object) -> bytes:
    return msgspec.msgpack.encode(value, enc_hook=_plain)


def decode(data: bytes, type_: type[T]) -> T:
    return msgspec.msgpack.decode(data, type=type_, dec_hook=_typed)


def _plain(value: object) -> float | bytes:
    """Convert a `Size` or `Duration` to a number, and `Marks` to bytes."""
    if isinstance(value, Marks):
        return value.tobytes()
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    raise TypeError(f"no place in a checkpoint for {type(value)}")


def _typed(type_: Callable[[object], object], value: object) -> object:
    return type_(value)


OldState = dict[str, Any]


class Upgrade(NamedTuple):
    """Upgrade step to a version; `change` modifies the decoded state in place."""

    version: int
    change: Callable[[OldState], None]


def version_of(snapshot: bytes) -> int:
    return msgspec.msgpack.decode(snapshot, type=_Version).version


def can_upgrade(version: int) -> bool:
    """Return whether a state of this version is current or can be upgraded to `VERSION`."""
    return version == VERSION or version in STEPS


def upgraded(snapshot: bytes) -> bytes:
    """Return the snapshot, upgraded to `VERSION`. Raise KeyError for a version that `can_upgrade` rejects."""
    version = version_of(snapshot)
    if version == VERSION:
        return snapshot
    state: OldState = msgspec.msgpack.decode(snapshot, strict=False)
    while version != VERSION:
        version, change = STEPS[version]
        change(state)
    state["version"] = VERSION
    return msgspec.msgpack.encode(state)


STEPS: dict[int, Upgrade] = {}
"""Upgrade steps, by the version that each step starts from."""


class _Version(msgspec.Struct):
    version: int
