"""Define the figures of the running daemon, from which /metrics and /status are made."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

import msgspec


class State(StrEnum):
    STARTING = "starting"
    OK = "ok"
    DEGRADED = "degraded"
    STOPPING = "stopping"
    FAILED = "failed"


class Condition(StrEnum):
    """A problem of the daemon that does not stop it. /healthz and /status report all current conditions."""

    SPOOL = "spool"
    """Sources wait, because the spool has reached its maximum size or its disk is full."""
    STORE = "store"
    CHECKPOINT = "checkpoint"
    UPKEEP = "upkeep"
    MEMORY = "memory"
    """Several starts ran out of memory, so the daemon writes input to the spool and suspends decoding."""
    DESCRIPTORS = "descriptors"
    """No file descriptor was free for connections, followed files, the spool or the table."""
    RETENTION = "retention"
    """Retention deletes no day, because the wall clock is not plausible."""
    DAMAGE = "damage"
    LEDGER = "ledger"
    """The sequence numbers of some streams are not checked, so their missing events are unknown."""
    RELOAD = "reload"
    """The last reload of the configuration failed, so the running configuration is older than the file."""
    PENDING = "pending"
    """Unfinished records of a source exceeded its `pending_max`, so some were dropped."""
    STATE = "state"
    """Sessions have exceeded a limit on their state, so some of the state was evicted."""
    CLOCK = "clock"
    """The wall clock was changed by a large amount, recently or while no collector ran."""
    NAMES = "names"
    """A path of the collector no longer leads to the file or directory that the collector has opened."""
    SOCKET = "socket"
    """The file of a unix socket is gone and cannot be created again, so clients cannot connect."""
    CREDENTIALS = "credentials"
    """A certificate has expired, or a file of certificates or tokens is unusable."""


class Durations(msgspec.Struct):
    """A histogram of durations (seconds): their number, their sum, and their number up to each bound in `BOUNDS`."""

    BOUNDS: ClassVar = (
        0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0
    )  # fmt: skip

    count: int = 0
    sum: float = 0.0
    at_most: list[int] = msgspec.field(default_factory=lambda: [0] * len(Durations.BOUNDS))

    def add(self, seconds: float) -> None:
        self.count += 1
        self.sum += seconds
        for index, bound in enumerate(self.BOUNDS):
            if seconds <= bound:
                self.at_most[index] += 1


class AdminRefusal(StrEnum):
    """Reason why the admin endpoint refused a connection, or closed it early."""

    ADDRESS = "address"
    CROWDED = "too many connections"
    DESCRIPTORS = "out of descriptors"
    HANDSHAKE = "handshake"
    MALFORMED = "malformed"
    SLOW = "slow"
    UNREAD = "unread"


ANSWERS = (200, 400, 401, 404, 405, 500, 503)
"""HTTP status codes of the admin endpoint. A malformed request gets no answer, and counts as a refusal."""


class AdminFigures:
    """Counters of the admin endpoint since the daemon started."""

    def __init__(self) -> None:
        self.requests = {str(code): 0 for code in ANSWERS}
        self.refused = {str(cause): 0 for cause in AdminRefusal}

    def answered(self, code: int) -> None:
        self.requests[str(code)] += 1

    def refuse(self, cause: AdminRefusal) -> None:
        self.refused[cause] += 1


class Figures:
    """Counters of the whole daemon since its start."""

    def __init__(self) -> None:
        self.syncs = Durations()
        self.commits = Durations()
        self.rows_committed = 0
        self.clock_steps = 0
        self.upkeeps: dict[str, int] = {"done": 0, "failed": 0}
        self.admin = AdminFigures()
        self.store_descriptors = self.upkeep_descriptors = self.log_descriptors = 0
        """How often the process had no free file descriptor: for a commit, for an upkeep, or for reading the log."""

    def committed(self, seconds: float, rows: int) -> None:
        self.commits.add(seconds)
        self.rows_committed += rows


AWAITED_MAX = 1000
"""Maximum number of streams that /status lists in `awaited` for a source."""


class SessionStatus(msgspec.Struct, kw_only=True):
    """How far and how fast a session's clock has advanced (see `ingest.clocks`). Timestamps are Unix seconds."""

    progress: str
    reached_ticks: int
    ticks_per_wall_second: float | None
    slowdown_ratio: float | None
    last_event_timestamp_seconds: float
    advanced_timestamp_seconds: float


class Awaited(msgspec.Struct, kw_only=True):
    """A stream of a source, and how many events of the stream may still arrive. These events do not count as missing
    yet."""

    session: str
    stream: str
    events: int


class SourceStatus(msgspec.Struct, kw_only=True):
    """The figures of one source in /status. If a field is the value of a metric, it has the metric's name. The structs
    in which the daemon counts the figures (`SourceFigures`, `Tally`, `Account`, `CommonsState`) use the same names."""

    type: str
    format: str
    address: str
    open: int
    received_bytes: int
    decoded_bytes: int
    malformed_bytes: int
    pending_bytes: int
    imbalance_bytes: int
    rows: int
    records: dict[str, int]
    packed_records: int
    """Number of records that a compiled kernel decoded into blocks, since the daemon started."""
    slow_records: int
    """Number of lines that were decoded one by one in Python, which is slow, since the daemon started."""
    flaws: dict[str, int]
    malformed_records: dict[str, int]
    expected_events: int
    seen_events: int
    missing_events: int
    duplicate_events: int
    uncounted_events: int
    uncounted_sessions: int
    imbalance_events: int
    gap_events: dict[str, int]
    heal_events: dict[str, int]
    gave_way: int
    unknown_gaps: int
    open_windows: int
    awaited_events: int
    awaited: list[Awaited]
    """The streams for which events may still arrive, at most `AWAITED_MAX` of them. `awaited_events` counts the awaited
    events of all streams. It also counts the missing events whose gap rows are not in the table yet."""
    asked_names: int
    """Number of names to which events refer, and which the file of these events has not defined so far.

    A name may still arrive, or another file may define it, so only the table shows which names are missing. If a file
    asks for more names than memory can hold, all further names of the file count as one."""
    followed_streams: int
    remembered_gaps: int
    forgotten_gaps: int
    state_bytes: int
    """Memory (bytes) that the state of the source's sessions takes. `ledger.source_state_max` is its limit."""
    evicted: dict[str, int]
    """Number of items that were evicted from the state of the sessions because of a limit, by kind of item."""
    unassigned_drops: int
    restarts: int
    sessions_opened: int
    sessions_closed: int
    followed_sessions: dict[str, int]
    unfollowed_sessions: int
    sessions: dict[str, SessionStatus]
    refused: dict[str, int]
    acknowledgements: dict[str, int]
    certificate_expiry_timestamp_seconds: float | None
    chunks: int
    empty: int
    taken_bytes: int
    kernel_drops: int
    queue_bytes: int
    buffer_bytes: int
    buffer_asked_bytes: int
    files: int
    waiting_files: dict[str, int]
    descriptors: int
    errors: dict[str, int]
    behind_bytes: int


class HeartbeatStatus(msgspec.Struct, kw_only=True):
    """Figures about heartbeats since the daemon started. All values are zero if there are no heartbeats."""

    interval_seconds: float = 0.0
    made: int = 0
    committed: int = 0
    age_seconds: float = 0.0
    """Seconds since the creation of the newest committed heartbeat."""
    commit_seconds: Durations = msgspec.field(default_factory=Durations)
    """Histogram of the times between the creation of a heartbeat and its commit."""


class MemoryStatus(msgspec.Struct, kw_only=True):
    """The memory of the daemon's process (see `daemon.memory`)."""

    state_bytes: int
    """Memory (bytes) that the state of all sessions takes. `ledger.state_max` is its limit."""
    bound_bytes: int
    """Maximum memory (bytes) that the process needs with the current configuration."""
    bounds: dict[str, int]
    """The parts of `bound_bytes`: for each part of the process, its maximum memory (bytes)."""


class SpoolStatus(msgspec.Struct, kw_only=True):
    size_bytes: int
    free_bytes: int | None
    """Free space (bytes) on the spool's file system, or None if the file system does not report free space."""
    end: int
    durable: int
    decoded: int
    committed: int
    buffered_bytes: int
    undecoded_bytes: int
    uncommitted_bytes: int
    sync_seconds: Durations
    identity: str


class Reload(msgspec.Struct, kw_only=True):
    """The last reload of the configuration: its time (Unix seconds), its success, and its problems."""

    timestamp_seconds: float
    good: bool
    problems: list[str]


class ConfigStatus(msgspec.Struct, kw_only=True):
    """The running configuration, its load time (Unix seconds), and the results of reloads."""

    path: str | None
    sha256: str
    loaded_timestamp_seconds: float
    reload_success: int
    reloads: dict[str, int]
    last_reload: Reload | None


class Status(msgspec.Struct, kw_only=True):
    """The content of /status."""

    version: str
    state: str
    conditions: dict[str, str]
    failure: str | None
    collector: str
    pid: int
    uptime_seconds: float
    killed_starts: int
    log_lines_dropped: int
    clock_steps: int
    clock_ahead_seconds: float
    config: ConfigStatus
    kernels: str
    store: str
    admin: str
    sources: dict[str, SourceStatus]
    spool: SpoolStatus
    memory: MemoryStatus
    heartbeat: HeartbeatStatus
    commits: int
    rows_committed: int
    commit_seconds: Durations
    upkeeps: dict[str, int]
    out_of_descriptors: dict[str, int]
    admin_requests: dict[str, int]
    admin_refused: dict[str, int]
    admin_certificate_expiry_timestamp_seconds: float | None

    @property
    def build(self) -> dict[str, str]:
        return {"version": self.version, "kernels": self.kernels}
