"""Every metric there is, and what holds between them at each scrape: the one place that says so.

The daemon's have no label but their own, a source's have `source`, with as many values as the
configuration has sources, a session's `source` and `session`. The reference is written from these tables,
and tests compare them with what a daemon exposes, and hold each scrape of it to the laws.
"""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.decoding.formats import FORMATS
from tailrace.figures import ANSWERS, Condition, Durations, Refusal, State
from tailrace.ingest.pace import Progress
from tailrace.metrics.definition import Label, Law, Metric, Restart, Type
from tailrace.model.gap import FOUND
from tailrace.model.holding import Evicted
from tailrace.model.record import Kind
from tailrace.normalize import FLAWS
from tailrace.sources.refusal import OF_TYPE
from tailrace.sources.source import Outcome

COUNTER, GAUGE, STATES = Type.COUNTER, Type.GAUGE, Type.STATES
HISTOGRAM, INFO = Type.HISTOGRAM, Type.INFO
KEPT, ZERO, NOW = Restart.KEPT, Restart.ZERO, Restart.NOW

_KINDS = tuple(set(Kind) - {Kind.MALFORMED, Kind.GAP, Kind.HEAL})


def _rules(_: str, format_: str) -> frozenset[str]:
    """Numbered events have no ids, whose rules are all formats'."""
    of_format = FORMATS[format_]
    return of_format.flaws if of_format.counter_bits else of_format.flaws | FLAWS


def _unreadable(type_: str, format_: str) -> frozenset[str]:
    compressed = {"bad_member"} if type_ == "tail" else set()
    return FORMATS[format_].malformed | compressed


KIND = Label("kind", "kinds", lambda *_: _KINDS)
RULE = Label("rule", "rules", _rules)
UNREADABLE = Label("cause", "causes", _unreadable)
REASON = Label("reason", "reasons", lambda *_: FOUND)
REFUSAL = Label("cause", "causes", lambda type_, _: OF_TYPE[type_])
OUTCOME = Label("outcome", "outcomes", lambda *_: tuple(Outcome))
WAITING = Label("cause", "causes", lambda *_: ("empty", "files_max", "original"))
PROGRESS = Label("progress", "states", lambda *_: tuple(Progress))
EVICTED = Label("kind", "kinds", lambda *_: tuple(Evicted))
ERROR = Label("error", "errors")

DAEMON = (
    Metric("tailrace_build", "build", INFO, NOW, "Version, and whether compiled kernels are in use."),
    Metric("tailrace_state", "state", STATES, NOW, "1 for the state the daemon is in.", Label("state", "states", lambda *_: tuple(State))),
    Metric("tailrace_condition", "conditions", STATES, NOW, "1 for each thing that is wrong now.", Label("condition", "conditions", lambda *_: tuple(Condition))),
    Metric("tailrace_config_reload_success", "config.reload_success", GAUGE, NOW, "0 if the last reload failed, so that an older configuration is running than is written; else 1.", counts="0 or 1"),
    Metric("tailrace_config_loaded_timestamp_seconds", "config.loaded_timestamp_seconds", GAUGE, NOW, "When the configuration that is running was loaded, as Unix time."),
    Metric("tailrace_config_reloads", "config.reloads", COUNTER, ZERO, "Reloads, by outcome.", Label("outcome", "outcomes", lambda *_: ("done", "failed")), counts="reloads"),
    Metric("tailrace_uptime_seconds", "uptime_seconds", GAUGE, ZERO, "Seconds since the daemon started."),
    Metric("tailrace_killed_starts", "killed_starts", GAUGE, NOW, "Starts in a row that were killed, most likely for want of memory, before they had decoded what the spool held; 0 once one has.", counts="starts"),
    Metric("tailrace_memory_bound_bytes", "memory.bound_bytes", GAUGE, NOW, "What the process takes at most with its configuration: the sum of the bounds that `tailrace check` prints."),
    Metric("tailrace_memory_state_bytes", "memory.state_bytes", GAUGE, NOW, "State that producers made sessions hold, of all sources (at most `ledger.state_max`)."),
    Metric("tailrace_clock_steps", "clock_steps", COUNTER, ZERO, "How often the wall clock was set, by 50 ms or more: timers do not follow it, the rows' times and days do.", counts="steps"),
    Metric("tailrace_clock_ahead_seconds", "clock_ahead_seconds", GAUGE, NOW, "How far the wall clock is ahead of the time that the daemon counts by the monotonic clock, from the last entry of its spool on; below 0 if it was set back."),
    Metric("tailrace_spool_size_bytes", "spool.size_bytes", GAUGE, NOW, "The spool on disk, preallocated space included."),
    Metric("tailrace_spool_free_bytes", "spool.free_bytes", GAUGE, NOW, "What the daemon may still write to the spool's file system, which is the table's too unless they are parted; absent if it does not say.", optional=True),
    Metric("tailrace_spool_buffered_bytes", "spool.buffered_bytes", GAUGE, NOW, "Received and not yet on disk."),
    Metric("tailrace_spool_undecoded_bytes", "spool.undecoded_bytes", GAUGE, NOW, "On disk and not yet decoded."),
    Metric("tailrace_spool_uncommitted_bytes", "spool.uncommitted_bytes", GAUGE, NOW, "On disk and not yet in the table."),
    Metric("tailrace_spool_sync_seconds", "spool.sync_seconds", HISTOGRAM, ZERO, "Time to bring what was received to disk."),
    Metric("tailrace_store_commit_seconds", "commit_seconds", HISTOGRAM, ZERO, "Time from a batch to its durable commit."),
    Metric("tailrace_heartbeat_interval_seconds", "heartbeat.interval_seconds", GAUGE, NOW, "Time between two heartbeats, which are events of the daemon's own; 0 where there are none."),
    Metric("tailrace_heartbeat_age_seconds", "heartbeat.age_seconds", GAUGE, ZERO, "Time since the newest heartbeat in the table was made; before the first one, since the daemon listens."),
    Metric("tailrace_heartbeat_commit_seconds", "heartbeat.commit_seconds", HISTOGRAM, ZERO, "Time from a heartbeat's making to its durable commit: of the whole way from the spool into the table."),
    Metric("tailrace_store_committed_rows", "rows_committed", COUNTER, ZERO, "Rows committed."),
    Metric("tailrace_store_upkeeps", "upkeeps", COUNTER, ZERO, "Upkeep runs, by outcome.", Label("outcome", "outcomes", lambda *_: ("done", "failed")), counts="runs"),
    Metric("tailrace_out_of_descriptors", "out_of_descriptors", COUNTER, ZERO, "How often a descriptor could not be had, by what for: `connections` of sources, followed `files`, the `admin` endpoint, commits to the `store`, runs of `upkeep`.", Label("what", "purposes", lambda *_: ("connections", "files", "admin", "store", "upkeep")), counts="failures"),
    Metric("tailrace_admin_requests", "admin_requests", COUNTER, ZERO, "Requests to the admin endpoint, by the status code of the answer.", Label("code", "codes", lambda *_: tuple(map(str, ANSWERS))), counts="requests"),
    Metric("tailrace_admin_refused", "admin_refused", COUNTER, ZERO, "Connections to the admin endpoint that were not taken or cut off, by cause: the `address` is not in `admin.allow`, the `handshake` failed, a request was `malformed` or `slow`, an answer stayed `unread`; of `too many connections`, the one that has waited longest.", Label("cause", "causes", lambda *_: tuple(Refusal)), counts="connections"),
    Metric("tailrace_admin_certificate_expiry_timestamp_seconds", "admin_certificate_expiry_timestamp_seconds", GAUGE, NOW, "When the certificate that the admin endpoint shows expires (Unix time); absent without TLS.", optional=True),
)  # fmt: skip

SOURCE = (
    Metric("tailrace_source_received_bytes", "received_bytes", COUNTER, KEPT, "Bytes that came in, as decoded so far."),
    Metric("tailrace_source_decoded_bytes", "decoded_bytes", COUNTER, KEPT, "Bytes of records that could be read."),
    Metric("tailrace_source_malformed_bytes", "malformed_bytes", COUNTER, KEPT, "Bytes that could not be read."),
    Metric("tailrace_source_pending_bytes", "pending_bytes", GAUGE, NOW, "Bytes of records that are not whole yet (at most the source's `pending_max`)."),
    Metric("tailrace_source_gave_way", "gave_way", COUNTER, KEPT, "Unfinished records given up because those of the source together were more than its `pending_max`.", counts="records"),
    Metric("tailrace_source_imbalance_bytes", "imbalance_bytes", GAUGE, NOW, "received - decoded - malformed - pending; 0, or Tailrace has a bug."),
    Metric("tailrace_source_taken_bytes", "taken_bytes", COUNTER, ZERO, "Bytes taken in since the daemon started."),
    Metric("tailrace_source_chunks", "chunks", COUNTER, ZERO, "Chunks taken in since the daemon started.", counts="chunks"),
    Metric("tailrace_source_rows", "rows", COUNTER, KEPT, "Rows made for the table."),
    Metric("tailrace_source_records", "records", COUNTER, KEPT, "Records decoded, by kind.", KIND),
    Metric("tailrace_source_flaws", "flaws", COUNTER, KEPT, "Records kept although they break a rule, by rule.", RULE, counts="records"),
    Metric("tailrace_source_malformed_records", "malformed_records", COUNTER, KEPT, "Pieces that could not be read, by cause.", UNREADABLE),
    Metric("tailrace_ledger_expected_events", "expected_events", GAUGE, KEPT, "Events that producers' counters and references say there are."),
    Metric("tailrace_ledger_seen_events", "seen_events", COUNTER, KEPT, "Events that came, duplicates too."),
    Metric("tailrace_ledger_missing_events", "missing_events", GAUGE, KEPT, "Events missing now: gaps not healed, and holes still open."),
    Metric("tailrace_ledger_duplicate_events", "duplicate_events", COUNTER, KEPT, "Events that had come before; they are not stored again."),
    Metric("tailrace_ledger_uncounted_events", "uncounted_events", COUNTER, KEPT, "Events of streams past a limit; they are stored, and nobody knows what is missing between them."),
    Metric("tailrace_ledger_uncounted_sessions", "uncounted_sessions", GAUGE, NOW, "Sessions with streams past a limit, whose numbers are not followed: a gap of unknown size names each stream, or the session.", counts="sessions"),
    Metric("tailrace_ledger_imbalance_events", "imbalance_events", GAUGE, NOW, "expected - (seen + missing - duplicate); 0, or Tailrace has a bug."),
    Metric("tailrace_ledger_gap_events", "gap_events", COUNTER, KEPT, "Events found missing, by reason.", REASON),
    Metric("tailrace_ledger_heal_events", "heal_events", COUNTER, KEPT, "Missing events that came after all, by the gap's reason.", REASON),
    Metric("tailrace_ledger_open_windows", "open_windows", GAUGE, NOW, "Sessions that wait for late events before they say what is missing.", counts="sessions"),
    Metric("tailrace_ledger_awaited_events", "awaited_events", GAUGE, NOW, "Events that have not come, and of which the table does not say yet that they are missing: late events still fill their holes, or the commit is under way."),
    Metric("tailrace_ledger_streams", "followed_streams", GAUGE, NOW, "Streams whose counters are followed (at most `ledger.source_streams_max`)."),
    Metric("tailrace_ledger_remembered_gaps", "remembered_gaps", GAUGE, NOW, "Holes and gaps that late events can still fill (at most `ledger.source_holes_max`).", counts="gaps"),
    Metric("tailrace_ledger_forgotten_gaps", "forgotten_gaps", COUNTER, KEPT, "Gaps that can no longer be healed, for want of room to remember them.", counts="gaps"),
    Metric("tailrace_source_state_bytes", "state_bytes", GAUGE, NOW, "State that producers made the source's sessions hold (at most `ledger.source_state_max`)."),
    Metric("tailrace_source_evicted", "evicted", COUNTER, KEPT, "Entries of state given up to keep a limit on memory, by kind: `spans` lack their begin's fields, `references` and `gaps` are missing for good, `marks`, `copies` and `numbers` no longer tell duplicates and losses, `frames` leave calls without their begin, and `names` are looked up by the views.", EVICTED, counts="entries"),
    Metric("tailrace_ledger_unknown_gaps", "unknown_gaps", COUNTER, KEPT, "Gaps found of which nobody knows the size.", counts="gaps"),
    Metric("tailrace_ledger_restarts", "restarts", COUNTER, KEPT, "Producers that began anew within a session.", counts="restarts"),
    Metric("tailrace_source_sessions_opened", "sessions_opened", COUNTER, KEPT, "Sessions begun: connections, datagram peers, files.", counts="sessions"),
    Metric("tailrace_source_sessions_closed", "sessions_closed", COUNTER, KEPT, "Sessions ended.", counts="sessions"),
    Metric("tailrace_source_followed_sessions", "followed_sessions", GAUGE, NOW, "Sessions whose own clock is held against wall time, by progress: `advancing`, `stalled` (events come, and for a minute none was later than those before), `silent` (no event came for a minute).", PROGRESS),
    Metric("tailrace_source_unfollowed_sessions", "unfollowed_sessions", GAUGE, NOW, "Sessions whose clock is not: `metrics.series_max` others are."),
    Metric("tailrace_source_open", "open", GAUGE, NOW, "Connections, datagram peers or files now.", counts="connections, peers or files"),
    Metric("tailrace_source_refused", "refused", COUNTER, ZERO, "Connections not taken or cut off, peers forgotten, datagrams dropped and files left alone, by cause.", REFUSAL, counts="connections, peers, datagrams or files"),
    Metric("tailrace_source_acknowledgements", "acknowledgements", COUNTER, ZERO, "Packets for clients that want to know what is durable, by outcome: `sent`, or put off because the client has not read earlier ones (`unread`), has not sent as much itself (`excess`, of a datagram peer) or is not there any more (`gone`), or because the kernel would not (`refused`).", OUTCOME, counts="packets"),
    Metric("tailrace_tcp_certificate_expiry_timestamp_seconds", "certificate_expiry_timestamp_seconds", GAUGE, NOW, "When the certificate that the source shows expires (Unix time); absent without TLS.", optional=True),
    Metric("tailrace_udp_kernel_dropped_datagrams", "kernel_drops", COUNTER, ZERO, "Datagrams the kernel dropped for want of room in the socket's buffer; at one that a service manager kept, in all its life."),
    Metric("tailrace_udp_unassigned_drops", "unassigned_drops", GAUGE, KEPT, "Of all datagrams the kernel ever dropped here, those that no gap of a counter accounts for.", counts="datagrams"),
    Metric("tailrace_udp_queue_bytes", "queue_bytes", GAUGE, NOW, "Memory of datagrams waiting in the socket's buffer."),
    Metric("tailrace_udp_buffer_bytes", "buffer_bytes", GAUGE, NOW, "The socket's buffer as granted by the kernel."),
    Metric("tailrace_udp_buffer_asked_bytes", "buffer_asked_bytes", GAUGE, NOW, "The socket's buffer as asked for."),
    Metric("tailrace_tail_files", "files", GAUGE, NOW, "Files followed, or known and waiting to be."),
    Metric("tailrace_tail_waiting_files", "waiting_files", GAUGE, NOW, "Files known and not followed, by what they wait for.", WAITING),
    Metric("tailrace_tail_descriptors", "descriptors", GAUGE, NOW, "Files held open.", counts="files"),
    Metric("tailrace_tail_errors", "errors", COUNTER, ZERO, "Calls for files and directories that failed and are tried again, by error.", ERROR, counts="calls"),
    Metric("tailrace_tail_behind_bytes", "behind_bytes", GAUGE, NOW, "Bytes of followed files that are not read yet."),
)  # fmt: skip

SESSION = (
    Metric("tailrace_session_reached_ticks", "reached_ticks", GAUGE, NOW, "The latest tick of the session's own clock."),
    Metric("tailrace_session_ticks_per_wall_second", "ticks_per_wall_second", GAUGE, NOW, "Ticks of its own clock in a second of wall time, over the last minute in which events came; not of a silent session.", counts="ticks per second", optional=True),
    Metric("tailrace_session_slowdown_ratio", "slowdown_ratio", GAUGE, NOW, "Wall seconds a simulated second, over the same time, where it is known how many ticks are a second; not while the clock stands.", optional=True),
    Metric("tailrace_session_last_event_timestamp_seconds", "last_event_timestamp_seconds", GAUGE, NOW, "When its last events came (Unix time)."),
    Metric("tailrace_session_advanced_timestamp_seconds", "advanced_timestamp_seconds", GAUGE, NOW, "When its clock went on (Unix time)."),
)  # fmt: skip
"""Of the sessions that are followed, at most `metrics.series_max`; all begins anew after a restart."""

LAWS = (
    Law("tailrace_source_received_bytes", "=", "tailrace_source_decoded_bytes + tailrace_source_malformed_bytes + tailrace_source_pending_bytes"),
    Law("tailrace_source_imbalance_bytes", "=", "0"),
    Law("tailrace_ledger_expected_events", "=", "tailrace_ledger_seen_events + tailrace_ledger_missing_events - tailrace_ledger_duplicate_events"),
    Law("tailrace_ledger_imbalance_events", "=", "0"),
    # What is missing and not said yet has an open window.
    Law("tailrace_ledger_gap_events - tailrace_ledger_heal_events", "<=", "tailrace_ledger_missing_events"),
    # And that is awaited.
    Law("tailrace_ledger_missing_events", "<=", "tailrace_ledger_gap_events - tailrace_ledger_heal_events + tailrace_ledger_awaited_events"),
    Law("tailrace_ledger_heal_events", "<=", "tailrace_ledger_gap_events", ("source", "reason")),
    Law("tailrace_ledger_duplicate_events", "<=", "tailrace_ledger_seen_events"),
    Law("tailrace_ledger_uncounted_events", "<=", "tailrace_ledger_seen_events"),
    # Every record is a row, but for what had come before; gaps and the course of sessions are rows, too.
    Law("tailrace_source_records - tailrace_ledger_duplicate_events", "<=", "tailrace_source_rows"),
    Law("tailrace_source_flaws", "<=", "tailrace_source_records"),
    Law("tailrace_source_sessions_closed", "<=", "tailrace_source_sessions_opened"),
    Law("tailrace_tail_waiting_files", "<=", "tailrace_tail_files"),
    Law("tailrace_state", "=", "1", ()),
    # Nothing is in the table that is not decoded, and the spool keeps what is not in the table.
    Law("tailrace_spool_undecoded_bytes", "<=", "tailrace_spool_uncommitted_bytes", ()),
    Law("tailrace_spool_uncommitted_bytes", "<=", "tailrace_spool_size_bytes", ()),
)  # fmt: skip

METRICS = (*DAEMON, *SOURCE, *SESSION)

_OF_ONE_TYPE = {"tailrace_tcp_": "tcp", "tailrace_udp_": "udp", "tailrace_tail_": "tail"}
"""How the names of metrics begin that only one type of source has."""


def type_of(metric: Metric) -> str | None:
    """The only type of source that has it; None for one that all have."""
    return next((t for prefix, t in _OF_ONE_TYPE.items() if metric.name.startswith(prefix)), None)


def laws_of(metric: Metric) -> Iterator[Law]:
    """What holds between it and others."""
    return (law for law in LAWS if metric.name in law.names)


def bound(metric: Metric) -> str:
    """How many samples it has at most, as an expression of keys of the configuration and of the
    numbers of `sources`, and of those of a type, such as `udp sources`."""
    own = 1
    if metric.type is HISTOGRAM:
        own = len(Durations.BOUNDS) + 3  # the bucket +Inf, the sum and the count
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
