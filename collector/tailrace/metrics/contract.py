"""List all metrics, and the equations and inequalities between them (`LAWS`) that hold at each scrape.

Each metric has a name, a type, labels, a maximum number of samples, and the field of the daemon's status from which
its value comes. Metrics of a source have the label `source`; metrics of a session also `session`. REFERENCE.md is
generated from these tables.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import StrEnum
from typing import NamedTuple

from tailrace.decoding.foreign import FOREIGN
from tailrace.decoding.formats import FORMATS
from tailrace.figures import ANSWERS, AdminRefusal, Condition, Durations, State
from tailrace.ingest.clocks import Progress
from tailrace.ingest.limits import TOO_MANY_SESSIONS
from tailrace.model.gap import FOUND
from tailrace.model.holding import Evicted
from tailrace.model.record import Kind
from tailrace.rows.fields import FLAWS
from tailrace.sources.source import OF_TYPE, Outcome

UNITS = frozenset(
    {
        "bytes", "datagrams", "events", "files", "names", "ratio", "records", "rows", "seconds", "sessions", "streams",
        "ticks",
    }
)  # fmt: skip
"""Units with which the name of a metric may end."""


class Type(StrEnum):
    COUNTER = "counter"
    """A counter, which never decreases, except when the daemon restarts."""
    GAUGE = "gauge"
    STATES = "states"
    """One gauge for each value of a label: 1 if the state with this name holds now, else 0."""
    HISTOGRAM = "histogram"
    INFO = "info"
    """A gauge that is always 1. Its labels contain the information."""

    @property
    def exposed(self) -> str:
        return "gauge" if self is Type.STATES else self.value

    @property
    def endings(self) -> tuple[str, ...]:
        """Return the suffixes of a metric's name that form the names of its samples."""
        several: dict[Type, tuple[str, ...]] = {
            Type.COUNTER: ("_total",),
            Type.INFO: ("_info",),
            Type.HISTOGRAM: ("_bucket", "_count", "_sum"),
        }
        return several.get(self, ("",))


class Restart(StrEnum):
    """The effect of a restart of the daemon on the value of a metric."""

    KEPT = "goes on"
    """The value continues after a restart, because checkpoints of the ingest contain it."""
    ZERO = "begins at 0"
    NOW = "is what it is then"


class Label(NamedTuple):
    """A label of a metric, besides `source` and `session`. `of` is a plural noun for its values. `values` returns all
    possible values for a type of source and a format; each value has a sample from the start. `values` is None if they
    are not known in advance."""

    name: str
    of: str
    values: Callable[[str, str], Collection[str]] | None = None

    def all(self, type_: str = "", format_: str = "") -> list[str]:
        """Return all possible values of the label in order; an empty list if they are not known in advance."""
        return sorted(self.values(type_, format_)) if self.values else []


class Metric(NamedTuple):
    """A metric: a family of samples. `field` is the path to its value in the daemon's status: a number, or a number
    for each value of `label`. For the type `states`, it is the name of the current state, or the names of all
    current states."""

    name: str
    field: str
    type: Type
    restart: Restart
    help: str
    label: Label | None = None
    counts: str = ""
    """Unit of the value, if the metric's name does not end with it."""
    optional: bool = False
    """Whether the metric sometimes has no value. Its help text states when."""

    @property
    def unit(self) -> str:
        """Return the unit of the value; empty if the value has no unit."""
        last = self.name.rpartition("_")[2]
        return last if last in UNITS else self.counts

    @property
    def samples(self) -> tuple[str, ...]:
        return tuple(self.name + ending for ending in self.type.endings)


class Law(NamedTuple):
    """A relation between metrics that holds at every scrape: `left` is equal to (`=`) or at most (`<=`) `right`, for
    each combination of values of the labels in `by`. A metric stands for the sum of its samples over all other
    labels."""

    left: str
    relation: str
    right: str
    by: tuple[str, ...] = ("source",)

    @property
    def text(self) -> str:
        each = [label for label in self.by if label != "source"]
        return " ".join([self.left, self.relation, self.right, *(f"for each {e}" for e in each)])

    @property
    def names(self) -> list[str]:
        return [w for w in f"{self.left} {self.right}".split() if w.startswith("tailrace_")]


COUNTER, GAUGE, STATES = Type.COUNTER, Type.GAUGE, Type.STATES
HISTOGRAM, INFO = Type.HISTOGRAM, Type.INFO
KEPT, ZERO, NOW = Restart.KEPT, Restart.ZERO, Restart.NOW

_KINDS = tuple(set(Kind) - {Kind.MALFORMED, Kind.GAP, Kind.HEAL})


def _rules(_: str, format_: str) -> frozenset[str]:
    """Return the rules that records of a format can break. The rules about ids apply only to formats without sequence
    numbers."""
    of_format = FORMATS[format_]
    return of_format.flaws if of_format.counter_bits else of_format.flaws | FLAWS


def _unreadable(type_: str, format_: str) -> frozenset[str]:
    of_type = {"bad_member"} if type_ == "tail" else {TOO_MANY_SESSIONS}
    return FORMATS[format_].malformed | of_type | FOREIGN.keys()


KIND = Label("kind", "kinds", lambda *_: _KINDS)
RULE = Label("rule", "rules", _rules)
UNREADABLE = Label("cause", "causes", _unreadable)
REASON = Label("reason", "reasons", lambda *_: FOUND)
REFUSAL = Label("cause", "causes", lambda type_, _: OF_TYPE[type_])
OUTCOME = Label("outcome", "outcomes", lambda *_: tuple(Outcome))
WAITING = Label(
    "cause", "causes",
    lambda *_: ("empty", "files_max", "inflating_max", "original", "other_format", "source"),
)  # fmt: skip
PROGRESS = Label("progress", "states", lambda *_: tuple(Progress))
EVICTED = Label("kind", "kinds", lambda *_: tuple(Evicted))
ERROR = Label("error", "errors")

DAEMON = (
    Metric("tailrace_build", "build", INFO, NOW, "Version, and what reads events of the usual shape: `compiled` kernels or `python`."),
    Metric("tailrace_state", "state", STATES, NOW, "1 for the state the daemon is in.", Label("state", "states", lambda *_: tuple(State))),
    Metric("tailrace_condition", "conditions", STATES, NOW, "1 for each condition that holds now.", Label("condition", "conditions", lambda *_: tuple(Condition))),
    Metric("tailrace_config_reload_success", "config.reload_success", GAUGE, NOW, "0 if the last reload failed, so that an older configuration is still running; otherwise 1.", counts="0 or 1"),
    Metric("tailrace_config_loaded_timestamp_seconds", "config.loaded_timestamp_seconds", GAUGE, NOW, "When the running configuration was loaded (Unix time)."),
    Metric("tailrace_config_reloads", "config.reloads", COUNTER, ZERO, "Reloads, by outcome.", Label("outcome", "outcomes", lambda *_: ("done", "failed")), counts="reloads"),
    Metric("tailrace_uptime_seconds", "uptime_seconds", GAUGE, ZERO, "Seconds since the daemon started."),
    Metric("tailrace_killed_starts", "killed_starts", GAUGE, NOW, "Consecutive starts that were killed, most likely because memory ran out, before they had decoded the spool; 0 after a start that has decoded it.", counts="starts"),
    Metric("tailrace_log_lines_dropped", "log_lines_dropped", COUNTER, ZERO, "Lines for standard error and output that were dropped, because nobody read them in time or they could not be written.", counts="lines"),
    Metric("tailrace_memory_bound_bytes", "memory.bound_bytes", GAUGE, NOW, "The most memory that the process takes with its configuration: the sum of the bounds that `tailrace check` prints."),
    Metric("tailrace_memory_state_bytes", "memory.state_bytes", GAUGE, NOW, "Memory of the state that sessions hold because of what producers sent, over all sources (at most `ledger.state_max`)."),
    Metric("tailrace_clock_steps", "clock_steps", COUNTER, ZERO, "How often the wall clock was set by 50 ms or more. Timers do not follow such a step; the times and days of rows do.", counts="steps"),
    Metric("tailrace_clock_ahead_seconds", "clock_ahead_seconds", GAUGE, NOW, "How far the wall clock is ahead of the daemon's own time, which follows the monotonic clock from the last entry of the spool; negative if the wall clock was set back."),
    Metric("tailrace_spool_size_bytes", "spool.size_bytes", GAUGE, NOW, "Size of the spool on disk, including preallocated space."),
    Metric("tailrace_spool_free_bytes", "spool.free_bytes", GAUGE, NOW, "Space that the daemon may still use on the spool's file system, which is also the table's unless they are separate; absent if the file system does not report it.", optional=True),
    Metric("tailrace_spool_buffered_bytes", "spool.buffered_bytes", GAUGE, NOW, "Bytes received and not yet on disk."),
    Metric("tailrace_spool_undecoded_bytes", "spool.undecoded_bytes", GAUGE, NOW, "Bytes on disk and not yet decoded."),
    Metric("tailrace_spool_uncommitted_bytes", "spool.uncommitted_bytes", GAUGE, NOW, "Bytes on disk and not yet in the table."),
    Metric("tailrace_spool_sync_seconds", "spool.sync_seconds", HISTOGRAM, ZERO, "Time to write received bytes to disk."),
    Metric("tailrace_store_commit_seconds", "commit_seconds", HISTOGRAM, ZERO, "Time from a batch to its durable commit."),
    Metric("tailrace_heartbeat_interval_seconds", "heartbeat.interval_seconds", GAUGE, NOW, "Time between two heartbeats, which are events that the daemon makes; 0 if heartbeats are off."),
    Metric("tailrace_heartbeat_age_seconds", "heartbeat.age_seconds", GAUGE, ZERO, "Time since the newest heartbeat in the table was made; before the first heartbeat, time since the daemon began to listen."),
    Metric("tailrace_heartbeat_commit_seconds", "heartbeat.commit_seconds", HISTOGRAM, ZERO, "Time from the making of a heartbeat to its durable commit, which covers the whole path from the spool to the table."),
    Metric("tailrace_store_committed_rows", "rows_committed", COUNTER, ZERO, "Rows committed."),
    Metric("tailrace_store_upkeeps", "upkeeps", COUNTER, ZERO, "Upkeep runs, by outcome.", Label("outcome", "outcomes", lambda *_: ("done", "failed")), counts="runs"),
    Metric("tailrace_out_of_descriptors", "out_of_descriptors", COUNTER, ZERO, "How often no descriptor was free, by purpose: the spool's `log`, `connections` of sources, followed `files`, the `admin` endpoint, commits to the `store`, runs of `upkeep`.", Label("what", "purposes", lambda *_: ("log", "connections", "files", "admin", "store", "upkeep")), counts="failures"),
    Metric("tailrace_admin_requests", "admin_requests", COUNTER, ZERO, "Requests to the admin endpoint, by the status code of the answer.", Label("code", "codes", lambda *_: tuple(map(str, ANSWERS))), counts="requests"),
    Metric("tailrace_admin_refused", "admin_refused", COUNTER, ZERO, "Connections to the admin endpoint that were refused or closed early, by cause: the `address` is not in `admin.allow`, the `handshake` failed, a request was `malformed` or `slow`, an answer stayed `unread`, there were `too many connections` (the oldest that waits for its client is closed), or the process was `out of descriptors`.", Label("cause", "causes", lambda *_: tuple(AdminRefusal)), counts="connections"),
    Metric("tailrace_admin_certificate_expiry_timestamp_seconds", "admin_certificate_expiry_timestamp_seconds", GAUGE, NOW, "When the certificate of the admin endpoint expires (Unix time); absent without TLS.", optional=True),
)  # fmt: skip

SOURCE = (
    Metric("tailrace_source_received_bytes", "received_bytes", COUNTER, KEPT, "Bytes received, as far as the decoder has come."),
    Metric("tailrace_source_decoded_bytes", "decoded_bytes", COUNTER, KEPT, "Bytes of records that were decoded."),
    Metric("tailrace_source_malformed_bytes", "malformed_bytes", COUNTER, KEPT, "Bytes that could not be decoded."),
    Metric("tailrace_source_pending_bytes", "pending_bytes", GAUGE, NOW, "Bytes of unfinished records (at most the source's `pending_max`)."),
    Metric("tailrace_source_gave_way", "gave_way", COUNTER, KEPT, "Unfinished records that were given up because all those of the source together exceeded its `pending_max`.", counts="records"),
    Metric("tailrace_source_imbalance_bytes", "imbalance_bytes", GAUGE, NOW, "received - decoded - malformed - pending; anything but 0 is a bug in Tailrace."),
    Metric("tailrace_source_taken_bytes", "taken_bytes", COUNTER, ZERO, "Bytes received since the daemon started."),
    Metric("tailrace_source_chunks", "chunks", COUNTER, ZERO, "Chunks received since the daemon started.", counts="chunks"),
    Metric("tailrace_source_rows", "rows", COUNTER, KEPT, "Rows produced for the table. A begin and its end are one row, which counts when the end comes."),
    Metric("tailrace_source_records", "records", COUNTER, KEPT, "Records decoded, by kind.", KIND),
    Metric("tailrace_source_packed_records", "packed_records", COUNTER, ZERO, "Records since the daemon started that a compiled kernel read. The others were decoded in Python: their shape is unusual, too few came together, or no kernel runs (see `tailrace_build_info`).", counts="records"),
    Metric("tailrace_source_slow_records", "slow_records", COUNTER, ZERO, "Lines of DFTracer and JETS since the daemon started that were read one by one, which takes many times as long: metadata, lines with a flaw other than `backslash` or of an unusual shape, and what cannot be decoded.", counts="records"),
    Metric("tailrace_source_flaws", "flaws", COUNTER, KEPT, "Records stored although they break a rule, by rule.", RULE, counts="records"),
    Metric("tailrace_source_malformed_records", "malformed_records", COUNTER, KEPT, "Pieces of input that could not be decoded, by cause.", UNREADABLE),
    Metric("tailrace_ledger_expected_events", "expected_events", GAUGE, KEPT, "Events that exist according to producers' counters and references."),
    Metric("tailrace_ledger_seen_events", "seen_events", COUNTER, KEPT, "Events that arrived, duplicates included."),
    Metric("tailrace_ledger_missing_events", "missing_events", GAUGE, KEPT, "Events missing now: gaps that are not healed, and holes that are still open."),
    Metric("tailrace_ledger_duplicate_events", "duplicate_events", COUNTER, KEPT, "Events that had arrived before. They are not stored again."),
    Metric("tailrace_ledger_uncounted_events", "uncounted_events", COUNTER, KEPT, "Events of streams beyond a limit. They are stored; how many events are missing between them is not known."),
    Metric("tailrace_ledger_uncounted_sessions", "uncounted_sessions", GAUGE, NOW, "Sessions with streams beyond a limit, whose sequence numbers are not followed. A gap of unknown size names each such stream, or the session.", counts="sessions"),
    Metric("tailrace_ledger_imbalance_events", "imbalance_events", GAUGE, NOW, "expected - (seen + missing - duplicate); anything but 0 is a bug in Tailrace."),
    Metric("tailrace_ledger_gap_events", "gap_events", COUNTER, KEPT, "Events found missing, by reason.", REASON),
    Metric("tailrace_ledger_heal_events", "heal_events", COUNTER, KEPT, "Missing events that arrived after all, by the gap's reason.", REASON),
    Metric("tailrace_ledger_open_windows", "open_windows", GAUGE, NOW, "Sessions that still wait for late events before missing events become gaps.", counts="sessions"),
    Metric("tailrace_ledger_awaited_events", "awaited_events", GAUGE, NOW, "Events that have not arrived and that no gap in the table reports yet: late events may still fill the hole, or the commit of the gap is under way."),
    Metric("tailrace_ledger_asked_names", "asked_names", GAUGE, KEPT, "Names to which events refer, and which the file of the events has not defined so far. They may still arrive, and another file of the source may define them, as that of a parent process does; `tailrace gaps` lists those that no file defines. If a file asks for more names than memory keeps, the others count as one name."),
    Metric("tailrace_ledger_streams", "followed_streams", GAUGE, NOW, "Streams whose sequence numbers are followed (at most `ledger.source_streams_max`)."),
    Metric("tailrace_ledger_remembered_gaps", "remembered_gaps", GAUGE, NOW, "Holes and gaps that late events can still fill (at most `ledger.source_holes_max`).", counts="gaps"),
    Metric("tailrace_ledger_forgotten_gaps", "forgotten_gaps", COUNTER, KEPT, "Gaps that can no longer be healed because there was no room to remember them.", counts="gaps"),
    Metric("tailrace_source_state_bytes", "state_bytes", GAUGE, NOW, "Memory of the state that the source's sessions hold because of what producers sent (at most `ledger.source_state_max`)."),
    Metric("tailrace_source_evicted", "evicted", COUNTER, KEPT, "Entries of state evicted to keep a limit on memory, by kind. Evicted `spans` lose the fields of their begin; `references` and `gaps` stay missing; without `marks`, `copies` and `numbers` some duplicates and losses go unnoticed; without `frames` calls have no begin; `names` are looked up by the views.", EVICTED, counts="entries"),
    Metric("tailrace_ledger_unknown_gaps", "unknown_gaps", GAUGE, KEPT, "Gaps of unknown size that have not healed.", counts="gaps"),
    Metric("tailrace_ledger_restarts", "restarts", COUNTER, KEPT, "Restarts of producers within a session.", counts="restarts"),
    Metric("tailrace_source_sessions_opened", "sessions_opened", COUNTER, KEPT, "Sessions opened: connections, datagram peers, files.", counts="sessions"),
    Metric("tailrace_source_sessions_closed", "sessions_closed", COUNTER, KEPT, "Sessions closed.", counts="sessions"),
    Metric("tailrace_source_followed_sessions", "followed_sessions", GAUGE, NOW, "Sessions whose own clock is compared with wall time, by progress: `advancing`, `stalled` (events arrive, but for a minute none was later than those before), `silent` (no event for a minute).", PROGRESS),
    Metric("tailrace_source_unfollowed_sessions", "unfollowed_sessions", GAUGE, NOW, "Sessions whose clock is not compared with wall time, because `metrics.series_max` others are."),
    Metric("tailrace_source_open", "open", GAUGE, NOW, "Connections, datagram peers or files that are open now.", counts="connections, peers or files"),
    Metric("tailrace_source_empty", "empty", COUNTER, ZERO, "Connections that ended without a byte, such as those of health probes, and datagrams of length 0. They leave no session and no row.", counts="connections or datagrams"),
    Metric("tailrace_source_refused", "refused", COUNTER, ZERO, "Connections refused or closed early, peers evicted, datagrams dropped and files ignored, by cause.", REFUSAL, counts="connections, peers, datagrams or files"),
    Metric("tailrace_source_acknowledgements", "acknowledgements", COUNTER, ZERO, "Acknowledgements to clients that ask what is durable, by outcome: `sent`, or postponed because the client has not read earlier ones (`unread`), because a datagram peer has sent fewer bytes than it would get (`excess`), because the client is gone (`gone`), or because the kernel did not take the packet (`refused`).", OUTCOME, counts="packets"),
    Metric("tailrace_tcp_certificate_expiry_timestamp_seconds", "certificate_expiry_timestamp_seconds", GAUGE, NOW, "When the source's certificate expires (Unix time); absent without TLS.", optional=True),
    Metric("tailrace_udp_kernel_dropped_datagrams", "kernel_drops", COUNTER, ZERO, "Datagrams that the kernel dropped because the socket's buffer was full. For a socket that a service manager kept, the count covers the socket's whole life."),
    Metric("tailrace_udp_unassigned_drops", "unassigned_drops", GAUGE, KEPT, "Datagrams that the kernel dropped and that no gap in a counter accounts for.", counts="datagrams"),
    Metric("tailrace_udp_queue_bytes", "queue_bytes", GAUGE, NOW, "Memory of the datagrams that wait in the socket's buffer."),
    Metric("tailrace_udp_buffer_bytes", "buffer_bytes", GAUGE, NOW, "Size of the socket's buffer as the kernel granted it."),
    Metric("tailrace_udp_buffer_asked_bytes", "buffer_asked_bytes", GAUGE, NOW, "Size of the socket's buffer as requested."),
    Metric("tailrace_tail_files", "files", GAUGE, NOW, "Files that are followed, or known and waiting to be followed."),
    Metric("tailrace_tail_waiting_files", "waiting_files", GAUGE, NOW, "Files that are known but not read, by what they wait for.", WAITING),
    Metric("tailrace_tail_descriptors", "descriptors", GAUGE, NOW, "Files that are held open.", counts="files"),
    Metric("tailrace_tail_errors", "errors", COUNTER, ZERO, "Calls on files and directories that failed and will be retried, by error.", ERROR, counts="calls"),
    Metric("tailrace_tail_behind_bytes", "behind_bytes", GAUGE, NOW, "Bytes of followed files that have not been read yet."),
)  # fmt: skip

SESSION = (
    Metric("tailrace_session_reached_ticks", "reached_ticks", GAUGE, NOW, "The latest tick of the session's own clock."),
    Metric("tailrace_session_ticks_per_wall_second", "ticks_per_wall_second", GAUGE, NOW, "Ticks of the session's own clock in a second of wall time, over the last minute in which events arrived; absent for a silent session.", counts="ticks per second", optional=True),
    Metric("tailrace_session_slowdown_ratio", "slowdown_ratio", GAUGE, NOW, "Seconds of wall time for each second of the session's clock, over the same minute, if the tick rate is known; absent while the clock stands still.", optional=True),
    Metric("tailrace_session_last_event_timestamp_seconds", "last_event_timestamp_seconds", GAUGE, NOW, "When the session's last events arrived (Unix time)."),
    Metric("tailrace_session_advanced_timestamp_seconds", "advanced_timestamp_seconds", GAUGE, NOW, "When the session's clock last advanced (Unix time)."),
)  # fmt: skip
"""Metrics of the sessions, at most `metrics.series_max`, whose clock is compared with wall time. A restart of the
daemon resets their values."""

LAWS = (
    Law("tailrace_source_received_bytes", "=", "tailrace_source_decoded_bytes + tailrace_source_malformed_bytes + tailrace_source_pending_bytes"),
    Law("tailrace_source_imbalance_bytes", "=", "0"),
    Law("tailrace_ledger_expected_events", "=", "tailrace_ledger_seen_events + tailrace_ledger_missing_events - tailrace_ledger_duplicate_events"),
    Law("tailrace_ledger_imbalance_events", "=", "0"),
    # `tailrace_ledger_missing_events` includes awaited events. No gap is reported for these yet, because they may still
    # arrive.
    Law("tailrace_ledger_gap_events - tailrace_ledger_heal_events", "<=", "tailrace_ledger_missing_events"),
    # `tailrace_ledger_awaited_events` includes the missing events for which no gap is reported yet, because they may
    # still arrive.
    Law("tailrace_ledger_missing_events", "<=", "tailrace_ledger_gap_events - tailrace_ledger_heal_events + tailrace_ledger_awaited_events"),
    Law("tailrace_ledger_heal_events", "<=", "tailrace_ledger_gap_events", ("source", "reason")),
    Law("tailrace_ledger_duplicate_events", "<=", "tailrace_ledger_seen_events"),
    Law("tailrace_ledger_uncounted_events", "<=", "tailrace_ledger_seen_events"),
    Law("tailrace_source_flaws", "<=", "tailrace_source_records"),
    Law("tailrace_source_sessions_closed", "<=", "tailrace_source_sessions_opened"),
    Law("tailrace_tail_waiting_files", "<=", "tailrace_tail_files"),
    Law("tailrace_state", "=", "1", ()),
    # Undecoded bytes are also uncommitted, because bytes are decoded before their rows are committed to the table.
    Law("tailrace_spool_undecoded_bytes", "<=", "tailrace_spool_uncommitted_bytes", ()),
    Law("tailrace_spool_uncommitted_bytes", "<=", "tailrace_spool_size_bytes", ()),
)  # fmt: skip

METRICS = (*DAEMON, *SOURCE, *SESSION)

_OF_ONE_TYPE = {"tailrace_tcp_": "tcp", "tailrace_udp_": "udp", "tailrace_tail_": "tail"}
"""By the beginning of a metric's name, the only type of source that has the metric. All types of source have all other
metrics."""


def type_of(metric: Metric) -> str | None:
    """Return the type of source that alone has this metric; None if all types have it."""
    return next((t for prefix, t in _OF_ONE_TYPE.items() if metric.name.startswith(prefix)), None)


def bound(metric: Metric) -> str:
    """Return the maximum number of samples of a metric, as an expression. It may contain configuration keys, the number
    of all sources (`sources`), and the number of sources of one type (for example `udp sources`)."""
    own = 1
    if metric.type is HISTOGRAM:
        # Count three more samples for a histogram: the bucket +Inf, the sum and the count.
        own = len(Durations.BOUNDS) + 3
    elif metric.label:
        own = max(1, *(len(metric.label.all(t, f)) for t in OF_TYPE for f in FORMATS))
    if metric in DAEMON:
        return str(own)
    if metric in SESSION:
        return "metrics.series_max"
    sources = f"{type_of(metric) or ''} sources".strip()
    if metric.label and not metric.label.values:
        return f"max({sources}, metrics.series_max)"
    return sources if own == 1 else f"{sources} * {own}"
