"""Define the ingest state that a checkpoint holds, and the upgrade steps from the states of earlier versions.

An upgrade step changes decoded msgpack values, because the struct classes of the earlier version no longer exist. A
new field with a default needs no step, but a new version, so that an older ingest rejects the state. Spool entries
need no steps: fields of their payloads are never renamed or dropped, and new fields have defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import msgspec

from tailrace.ingest.spans import ForgottenSpans, OpenSpan
from tailrace.ledger.bounds import CommonsState
from tailrace.ledger.references import ReferencesState
from tailrace.ledger.run_pieces import SplitRunsState
from tailrace.ledger.stream import CountersState, Marks
from tailrace.model.gap import Account
from tailrace.spool.payloads import FileState, OpenInfo

T = TypeVar("T")

VERSION = 1
"""Version of the state, which includes the decoders' states and the spool's entries. After a release, a change
increments it and adds an upgrade step to `STEPS`."""


class Tally(msgspec.Struct, omit_defaults=True):
    """Sums of one source since its first spool entry. received = decoded + malformed + pending (bytes); expected =
    seen + missing - duplicates (events). The encoded field names are the names in /status and in the metrics
    (`daemon.status`)."""

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
    """Number of gaps of unknown size that were reported and not taken back later."""
    asked: int = msgspec.field(default=0, name="asked_names")
    """Number of names that events of closed sessions refer to and that these sessions did not define."""
    restarts: int = 0
    opened: int = msgspec.field(default=0, name="sessions_opened")
    closed: int = msgspec.field(default=0, name="sessions_closed")
    evicted: dict[str, int] = {}
    """Number of entries that sessions dropped to respect the memory limits, by the kind of entry."""
    events: Account = msgspec.field(default_factory=Account)
    """Counts of the events of finished incarnations (producer runs)."""

    @property
    def said_missing(self) -> int:
        """Return the number of events that gap rows report as missing and that have not arrived since."""
        return sum(self.gaps.values()) - sum(self.heals.values())


class RowRange(msgspec.Struct, array_like=True):
    first: int
    last: int
    count: int
    estimate: bool


class StreamRows(msgspec.Struct):
    """Gap rows of a stream in the period that began at `since` (Unix ns). `ranges` has the merged gaps, by reason."""

    since: int
    written: int = 0
    ranges: dict[str, RowRange] = {}


class IncarnationState(msgspec.Struct, omit_defaults=True):
    """State of one incarnation (producer run), for a checkpoint."""

    name: str
    id: str = ""
    """The id that the client gave to its session; "" if the client gave none."""
    reached: int = 0
    """Number of bytes received so far for the incarnation (producer run), over all its connections."""
    records: int = 0
    rows: int = 0
    """Number of the incarnation's rows, without rows about the session and rows of kind `begin`."""
    of_pieces: int = 0
    """Number of missing events that became known only from other files of the same run; negative if other files contain
    events that were reported as missing here."""
    accounted: int | None = None
    """Value of `rows` when the last account (row with the counts of rows and events) was written; None before the
    end."""
    began: int = 0
    """Time (Unix ns) at which the first record arrived."""
    epoch: int | None = None
    clock: str | None = None
    ticks_per_second: float | None = None
    ended: str = ""
    """Reason of the end, for an incarnation (producer run) that only waits for late events."""
    ended_at: int = 0
    """Time (Unix ns) at which the incarnation (producer run) ended."""
    goodbye_at: int = 0
    """Time (Unix ns) at which the goodbye (the client's statement that its session ends) was complete or a footer
    arrived; 0 before, and after a further record."""
    goodbye_parts: bytes = b""
    """Bit set of the received parts of the goodbye (the client's statement that its session ends): bit n stands for
    part n. The first byte has the lowest bits."""
    goodbye_last: int | None = None
    """Number of the last part of the goodbye (the client's statement that its session ends); None until this part
    arrives."""
    awaits_end: bool = False
    """Whether the last row about the end of a file's stream states that the end is missing."""
    counters: CountersState = msgspec.field(default_factory=CountersState)
    references: ReferencesState = msgspec.field(default_factory=ReferencesState)
    spans: dict[int, OpenSpan] = {}
    forgotten_spans: ForgottenSpans = msgspec.field(default_factory=ForgottenSpans)
    gap_rows: dict[str, StreamRows] = {}
    lead: int | None = None
    """Producer's clock (ns since its zero) minus the spool entry's time (Unix ns), for the event with the shortest
    delay."""
    lead_at: int = 0
    """Arrival time (Unix ns) of the event from which `lead` was computed."""
    heard_at: int = 0
    """Time (Unix ns) at which the last record with a time of the producer's clock arrived."""
    heard_times: int = 0
    """Number of different arrival times among the records with a time of the producer's clock."""
    continues: list[str] = []
    """Names of the earlier sessions whose streams continue in this incarnation (producer run)."""
    elsewhere: dict[str, str] = {}
    """By stream, an earlier session that may contain the numbers before the first one that arrived."""
    times: tuple[int, int] | None = None
    """Earliest and latest event time (ticks), for a producer whose run may be spread over several files."""
    unended: tuple[int, str] | None = None
    """End (offset) and reason of unreadable bytes that the next bytes may continue."""


class AnnouncedState(msgspec.Struct, omit_defaults=True):
    """State of a session to which its client gave an id: one run of the client's program, over any number of
    connections."""

    incarnation: IncarnationState = msgspec.field(name="run")
    info: OpenInfo
    """Payload of the OPEN entry of the connection on which the client first stated the session's id."""
    carriers: list[int] = []
    """Numbers of the connections (or datagram peers) that the session uses, or whose late datagrams may still belong to
    the session."""
    voice: int | None = None
    """Number of the connection on which the client last stated the session's id. Acknowledgements go to this
    connection."""
    bearer: int | None = None
    """Number of the connection that delivered the last bytes."""
    left: int = 0
    """Time (Unix ns) at which the session's last connection closed."""
    ended: bool = False
    """Whether the row of the session's end is written. Even then, a client may repeat its goodbye (its statement that
    the session ends)."""
    turn: int = 0
    acknowledge: bool = False


class Departure(msgspec.Struct, array_like=True):
    """An ended session that a new session may continue."""

    session: str
    host: str
    left: int
    """Time (Unix ns) at which the session ended, moved later by the time for which no daemon has run since then,
    because waiting periods do not include such time."""
    epoch: int | None
    streams: dict[str, tuple[int, int]]
    """By stream, the next number and the mark (fingerprint) of the last event."""
    cut: list[str] = []
    """Streams of a session whose connection broke, except those that a later session has continued already."""
    unnumbered: int = 0
    """Number of events in gaps without a sequence number, in this session and those that it continues."""


class SessionState(msgspec.Struct, omit_defaults=True):
    """State of one session. The name of a producer run is the session's name and, after a restart, a dot and
    `restarts`."""

    number: int
    info: OpenInfo
    current: IncarnationState | str = msgspec.field(name="run")
    """State of the current incarnation (producer run), or the id that its client gave to the session."""
    process: int = 0
    """Number of the process whose run is the current incarnation, for input with records of several processes."""
    aside: dict[int, IncarnationState] = {}
    """Current incarnations (runs) of all processes except `process`, by process number."""
    goes_on: bool = False
    """Whether other files continue the runs of the session's file, so that its end does not count as missing."""
    previous: IncarnationState | str | None = None
    """The previous incarnation (producer run), as long as its late events may still arrive; otherwise None."""
    base: int = 0
    """Number of bytes to add to `place` to get the offset in the producer run's bytes on all its connections."""
    epochs: dict[int, str] = {}
    """By epoch, the name of the incarnation (producer run) that stated the epoch."""
    restarts: int = 0
    doubt: str = ""
    """Reason of the restart, as long as it is uncertain that the producer restarted; otherwise ""."""
    last: int = 0
    """Time (Unix ns) of the last spool entry with data of this session."""
    received: int = 0
    """Number of received bytes."""
    record_since: int = 0
    """Time (Unix ns) at which the unfinished record began to arrive; 0 without an unfinished record."""
    file: FileState | None = None
    skipped: int = 0
    """Number of bytes of the input that no decoder read: holes of files, duplicate datagrams and refused bytes."""
    refusing: bool = False
    """Whether all further bytes of the peer are stored as unreadable, because its host began too many sessions."""
    garbage: int = 0
    """Number of unreadable bytes since the last readable record. With too many, the peer is disconnected."""
    copies: dict[bytes, tuple[int, int]] = {}
    """Newest datagrams of a producer without sequence numbers, to recognise duplicates; see `ledger.copies`."""
    quarantined: int = 0
    """Size (bytes) of the session's quarantine file."""
    head: bytes | None = None
    """The first bytes of the input, until they suffice to decide whether it belongs to the session's format."""
    foreign: str = ""
    """Kind of content that does not belong to the session's format, a key of `foreign.FOREIGN`; otherwise ""."""
    decoder: bytes | None = None
    """Encoded state of the decoder; set only in a checkpoint."""
    begun: int = 0
    """A spool position at or before the entry with the first byte of the unfinished record; 0 without such a record."""
    left_out: int = 0
    """Number of bytes of the unfinished record that the checkpoint omits because the spool holds them."""
    waiting: bytes = b""
    """Bytes of the unfinished record that the checkpoint omits. A start of the daemon reads them from the spool."""

    @property
    def place(self) -> int:
        """Return the offset (bytes) that the session's input has reached, including skipped bytes."""
        return self.file.offset if self.file else self.received


class DamageState(msgspec.Struct, omit_defaults=True):
    """Numbers of spool bytes that the disk has lost and that no gap row reports yet."""

    lacking: dict[str, int] = {}
    """Number of lost bytes that may belong to an open session, by the session's number or, if a client gave it an id,
    by `source/id`."""
    of_heartbeats: int = 0
    """Number of lost bytes that may have contained heartbeats of the daemon."""
    unsaid: int = 0
    """Number of lost bytes to report in the next session that opens, because no session was open."""

    def add(self, other: DamageState) -> None:
        for key, size in other.lacking.items():
            self.lacking[key] = self.lacking.get(key, 0) + size
        self.of_heartbeats += other.of_heartbeats
        self.unsaid += other.unsaid


class IngestState(msgspec.Struct):
    version: int = VERSION
    position: int = 0
    """Spool position up to which this state includes all entries."""
    now: int = 0
    """Time (Unix ns) of the last processed spool entry."""
    tallies: dict[str, Tally] = {}
    commons: dict[str, CommonsState] = {}
    """By source, the state that the ledgers of the source's sessions share."""
    sessions: dict[int, SessionState] = {}
    announced: dict[str, dict[str, AnnouncedState]] = {}
    """Sessions to which clients gave ids, by source and id. Sessions without a connection are in the order in which
    their last connections were closed."""
    departures: dict[str, list[Departure]] = {}
    """Ended sessions without an id from a client, by source."""
    ahead: int = 0
    """Number of nanoseconds to add to the time of a spool entry, to get wall time."""
    heartbeats: IncarnationState | None = None
    """State of the daemon's own stream; None if no run of the daemon has opened it."""
    damage: DamageState = msgspec.field(default_factory=DamageState)
    beginnings: dict[str, dict[str, int]] = {}
    """By source and host, the time (ns) from which the host has its full quota of new sessions again."""
    pieces: dict[str, SplitRunsState] = {}
    """By source, the runs whose records are spread over several files."""


def encode(value: object) -> bytes:
    return msgspec.msgpack.encode(value, enc_hook=_plain)


def decode(data: bytes, type_: type[T]) -> T:
    return msgspec.msgpack.decode(data, type=type_, dec_hook=_typed)


def _plain(value: object) -> float | bytes:
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
    """A step that upgrades a state to the version `version`. The function `change` modifies the decoded state in
    place."""

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
"""Upgrade steps by the version that each of them upgrades."""


class _Version(msgspec.Struct):
    version: int
