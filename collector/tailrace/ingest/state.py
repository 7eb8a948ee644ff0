"""The state of the ingest, as data that a checkpoint can hold, and the steps from the states of earlier versions.

A step is a pure function on the values that msgpack holds: dicts, lists and numbers, since the classes of then
are gone. A new member that needs no value from the old state needs no function but its default. It needs a
version all the same, so that an older ingest does not take the state for its own. There is no step yet,
since nothing was released.

Spool entries need no steps: the members of their payloads are never renamed or dropped, and new ones
have defaults.
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
"""Version of the state: its structs, those of the decoders' states, and the spool's entries. It rises by
one with the first change after a release, together with a step in `upgrade`."""


class Tally(msgspec.Struct, omit_defaults=True):
    """One source's sums since its first entry: bytes as received, records and events by fate.

    received = decoded + malformed + pending (bytes); expected = seen + missing - duplicates (events).
    Fields are encoded by the names that /status and the metrics have for them (`daemon.status`).
    """

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
    """Unfinished records that were given up because the source's sessions held too many bytes of
    them."""
    unknown_gaps: int = 0
    """Gaps of unknown size, without those that have healed."""
    restarts: int = 0
    opened: int = msgspec.field(default=0, name="sessions_opened")
    closed: int = msgspec.field(default=0, name="sessions_closed")
    evicted: dict[str, int] = {}
    """Entries, by kind, that sessions gave up to keep the limits on memory."""
    events: Account = msgspec.field(default_factory=Account)
    """Events of incarnations that are over; those that live have their own accounts."""

    @property
    def said_missing(self) -> int:
        """Return the events that the gap rows so far call missing, net of heals."""
        return sum(self.gaps.values()) - sum(self.heals.values())


class IncarnationState(msgspec.Struct, omit_defaults=True):
    """One incarnation of a session's producer."""

    name: str
    id: str = ""
    """Id of the announced session that the incarnation is; "" where its client announced none."""
    reached: int = 0
    """Bytes of the incarnation so far, of all its connections one after the other."""
    records: int = 0
    began: int = 0
    """When the first record came (Unix ns)."""
    epoch: int | None = None
    clock: str | None = None
    ticks_per_second: float | None = None
    ended: str = ""
    """Why the incarnation is over, if it only waits for late events."""
    ended_at: int = 0
    """When it ended (Unix ns)."""
    goodbye_at: int = 0
    """When the client's goodbye had come as a whole, or a footer that no record has followed (Unix ns)."""
    goodbye_parts: bytes = b""
    """Which parts of its goodbye have come: bit n for part n, the lowest bits first."""
    goodbye_last: int | None = None
    """The number of its goodbye's last part, if that has come."""
    counters: CountersState = msgspec.field(default_factory=CountersState)
    references: ReferencesState = msgspec.field(default_factory=ReferencesState)
    spans: dict[int, OpenSpan] = {}
    forgotten_spans: ForgottenSpans = msgspec.field(default_factory=ForgottenSpans)
    gap_rows: dict[str, StreamRows] = {}
    lead: int | None = None
    """How far the producer's clock, its zero taken for 0, is ahead of the log's time (ns); see
    `lead`."""
    lead_at: int = 0
    """When the lead was measured (Unix ns)."""
    heard_at: int = 0
    """When the clock was last heard (Unix ns)."""
    heard_times: int = 0
    """At how many different times the clock was heard."""
    continues: list[str] = []
    """Earlier sessions whose streams continue here."""
    elsewhere: dict[str, str] = {}
    """By stream that begins above zero, the earlier session that may have the numbers below."""
    times: tuple[int, int] | None = None
    """The ticks of the first event and of the latest one, of a producer whose run several files may have."""
    unended: tuple[int, str] | None = None
    """End and flaw of the last unreadable piece, if its line may continue there."""


class AnnouncedState(msgspec.Struct, omit_defaults=True):
    """A session that its client announced: one incarnation, over any number of connections."""

    incarnation: IncarnationState = msgspec.field(name="run")
    info: OpenInfo
    """Info of the first connection."""
    carriers: list[int] = []
    """Numbers of the connections over which the session comes, or may still come."""
    voice: int | None = None
    """The connection that announced the session last: answers go there."""
    bearer: int | None = None
    """The connection that brought the last bytes."""
    left: int = 0
    """When the last connection left (Unix ns)."""
    ended: bool = False
    """Whether the session's row of its end is written; its numbers are still known."""
    turn: int = 0
    acknowledge: bool = False


class Departure(msgspec.Struct, array_like=True):
    """How far the streams of a session had come when it ended."""

    session: str
    host: str
    left: int
    """When the session ended (Unix ns), later by the time for which no daemon ran."""
    epoch: int | None
    streams: dict[str, tuple[int, int]]
    """By stream, its next number and the mark of its last event."""
    cut: list[str] = []
    """Streams of a connection that was cut and that nothing has continued yet. With the last one, the session's
    gap of unknown size heals."""


class SessionState(msgspec.Struct, omit_defaults=True):
    """One session and the incarnations of its producer, named after the session and `restarts`."""

    number: int
    info: OpenInfo
    current: IncarnationState | str = msgspec.field(name="run")
    """The current incarnation, or the id of the announced session that it is."""
    process: int = 0
    """The number of the process that the current incarnation is, in an input of several processes."""
    aside: dict[int, IncarnationState] = {}
    """The current incarnations of the other processes, by number."""
    previous: IncarnationState | str | None = None
    """The previous incarnation, while events of it may still come."""
    base: int = 0
    """Difference from a place in the session's bytes to the place in the current incarnation's
    bytes."""
    epochs: dict[int, str] = {}
    """The names of incarnations, by epoch."""
    restarts: int = 0
    doubt: str = ""
    """Why the current incarnation began, while no event has shown yet that it is a new one."""
    last: int = 0
    """When the last entry came (Unix ns)."""
    received: int = 0
    """Bytes received."""
    record_since: int = 0
    """When the unfinished record began to come (Unix ns); 0 if there is none."""
    file: FileState | None = None
    """None where the session reads no file."""
    skipped: int = 0
    """Bytes that the decoder did not see: holes, and copies of datagrams."""
    refusing: bool = False
    """Whether its peer began too many sessions, so that its further bytes belong to no session."""
    garbage: int = 0
    """Malformed bytes since the last readable record."""
    copies: dict[bytes, tuple[int, int]] = {}
    """The newest datagrams of a producer that numbers nothing; see `ledger.copies`."""
    quarantined: int = 0
    """Size of the session's quarantine file (bytes)."""
    head: bytes | None = None
    """The first bytes, while they do not show yet whether the content is foreign."""
    foreign: str = ""
    """One of `foreign.FOREIGN` if no decoder reads the content."""
    decoder: bytes | None = None
    """The decoder's encoded state; only in a checkpoint."""
    begun: int = 0
    """Spool position at or below the unfinished record's first byte; 0 if there is none."""
    left_out: int = 0
    """Bytes of the unfinished record that the checkpoint leaves to the spool."""
    waiting: bytes = b""
    """The bytes left out, read again from the spool; never in a checkpoint."""

    @property
    def place(self) -> int:
        """Return how far the session's bytes go."""
        return self.file.offset if self.file else self.received


class DamageState(msgspec.Struct, omit_defaults=True):
    """Bytes of the log that the disk lost, and that no row names yet."""

    lacking: dict[str, int] = {}
    """By open session's number, or announced session's source and id, the bytes that it may lack."""
    of_heartbeats: int = 0
    """The bytes that the daemon's own stream may lack."""
    unsaid: int = 0
    """The bytes of which all sessions say that they may lack them, once there is a session."""

    def add(self, other: DamageState) -> None:
        for key, size in other.lacking.items():
            self.lacking[key] = self.lacking.get(key, 0) + size
        self.of_heartbeats += other.of_heartbeats
        self.unsaid += other.unsaid


class IngestState(msgspec.Struct):
    version: int = VERSION
    position: int = 0
    """The state holds all entries of the spool below this position."""
    now: int = 0
    """Time of the last entry (Unix ns)."""
    tallies: dict[str, Tally] = {}
    commons: dict[str, CommonsState] = {}
    """By source."""
    sessions: dict[int, SessionState] = {}
    announced: dict[str, dict[str, AnnouncedState]] = {}
    """By source and id; among those without a connection, the one that left first is first."""
    departures: dict[str, list[Departure]] = {}
    """By source, the sessions that ended and were not announced."""
    ahead: int = 0
    """How far the wall clock is ahead of the log's time (ns)."""
    heartbeats: IncarnationState | None = None
    """The daemon's own stream, while this or an earlier life of the daemon has one."""
    damage: DamageState = msgspec.field(default_factory=DamageState)
    beginnings: dict[str, dict[str, int]] = {}
    """By source and host, when the host may begin a whole second's sessions at once (ns); see `beginnings`."""
    pieces: dict[str, SplitRunsState] = {}
    """By source, the runs of which several files have pieces."""


def encode(value: object) -> bytes:
    return msgspec.msgpack.encode(value, enc_hook=_plain)


def decode(data: bytes, type_: type[T]) -> T:
    return msgspec.msgpack.decode(data, type=type_, dec_hook=_typed)


def _plain(value: object) -> float | bytes:
    """Return a `Size` or `Duration` as a number, `Marks` as bytes."""
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
    """A step to a version; `change` works in place."""

    version: int
    change: Callable[[OldState], None]


def version_of(snapshot: bytes) -> int:
    return msgspec.msgpack.decode(snapshot, type=_Version).version


def can_upgrade(version: int) -> bool:
    """Return whether a state of this version is today's, or can be upgraded to it."""
    return version == VERSION or version in STEPS


def upgraded(snapshot: bytes) -> bytes:
    """Return a state as of `VERSION`. Raise KeyError for a state that `can_upgrade` denies."""
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
"""The steps by the version that each begins with."""


class _Version(msgspec.Struct):
    version: int
