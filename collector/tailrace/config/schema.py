"""Every configuration key with its type, default and meaning: the only place that has them.

The field name is the key. `config/tailrace.toml` is the same list for people and a test holds the
two together. A comment string under a field is its documentation.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tailrace.units import Duration, Size

KIB, MIB, GIB = 2**10, 2**20, 2**30

OWN_SOURCE = "tailrace"
"""The source whose rows are the daemon's own; no configured one can have its name."""


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the configuration file; keys it does not know are refused."""


class StoreConfig(Section, frozen=True):
    path: str = ""
    """Directory or URL (s3://bucket/prefix) of the table; empty is the per-user data directory."""
    options: dict[str, str] = {}
    """Storage options of an object store, passed on as they are; secrets belong in the environment."""
    commit_interval: Duration = Duration(1)
    """Rows become visible to queries at most this long after they were decoded."""
    commit_rows: int = 100_000
    """A commit is written as soon as it holds this many rows."""
    commit_bytes: Size = Size(16 * MIB)
    """A commit is written as soon as it holds about this much."""
    compact_size: Size = Size(128 * MIB)
    """Small files are merged by and by into files of this size."""
    retention_age: Duration | None = None
    """Days older than this are deleted, if the clock can be believed, but not the newest day; none keeps all."""
    retention_size: Size | None = None
    """The oldest days are deleted while the table is larger than this; none keeps all."""


class SpoolConfig(Section, frozen=True):
    path: str = ""
    """Local directory of the spool; empty is `spool` in the store's directory, or, for a URL, one of its own in the per-user data directory."""
    sync_interval: Duration = Duration(0.05)
    """What was received is on disk after at most this long; only then is it decoded."""
    segment_size: Size = Size(64 * MIB)
    """Size of one preallocated segment file."""
    max_size: Size = Size(8 * GIB)
    """When the spool holds this much, sources wait: TCP peers block, datagrams queue in the kernel."""
    checkpoint_interval: Duration = Duration(30)
    """Decoder state is saved this often, which bounds the work of a restart."""
    checkpoint_bytes: Size = Size(64 * MIB)
    """Decoder state is saved also after this much has been decoded."""


class QuarantineConfig(Section, frozen=True):
    max_size: Size = Size(256 * MIB)
    """All that could not be decoded is kept up to this much; then the oldest file goes."""
    session_size: Size = Size(1 * MIB)
    """One session's share; what exceeds it is counted but not kept."""


class LedgerConfig(Section, frozen=True):
    reorder_events: int = 512
    """A missing event is a gap once this many later ones of its stream have arrived."""
    reorder_time: Duration = Duration(2)
    """A missing event is a gap at the latest after this long."""
    streams_max: int = 4096
    """Streams of a session whose numbers are followed; events of further streams are stored, and a gap of unknown size says that nobody knows what they lack."""
    holes_max: int = 1024
    """Separate holes remembered for each stream; beyond that the oldest is closed."""
    gap_rows_max: int = 100
    """Gaps of a stream that are rows of their own within each `reorder_time`; further ones share a row over a range of numbers."""
    source_streams_max: int = 16_384
    """Streams that are followed of all sessions of a source together, about 6 KiB of memory each. When all places are taken, the session that holds the most gives way to a session that holds fewer: its streams that were silent longest are followed no more."""
    source_holes_max: int = 262_144
    """Holes and gaps remembered for all sessions of a source together, at most 768 B each; beyond that a stream with a new one forgets its oldest, which then cannot be healed."""
    resume_time: Duration = Duration(600)
    """A session that its client announced is remembered this long after its last connection ended; if the client said no goodbye, it is over then."""
    sessions_max: int = 1024
    """Announced sessions of a source that are remembered without a connection; beyond that the one that left first is forgotten."""
    references_max: int = 65_536
    """Record ids (as ranges) and unknown references remembered for each session."""
    open_spans_max: int = 65_536
    """Begun and not yet ended spans remembered for each session."""
    session_state_max: Size = Size(16 * MIB)
    """Memory for the state that one session's producer makes grow: open spans, references, streams, holes, names. Beyond it the oldest is given up, counted, and said in a row."""
    source_state_max: Size = Size(48 * MIB)
    """The same for all sessions of a source together; the sessions that hold most give way."""
    state_max: Size = Size(64 * MIB)
    """The same for all sources together."""


class AdminConfig(Section, frozen=True):
    listen: str = "127.0.0.1:9464"
    """host:port of /status, /metrics, /healthz and /readyz, and of / which lists them; port 0 lets the system choose."""
    tls_certificate: str = ""
    """PEM file of a certificate and those up to its authority: connections are TLS; without, they are plain. Files are read again when they change."""
    tls_key: str = ""
    """PEM file of the certificate's key, without a password; not every user of this host may read it."""
    tls_client_authority: str = ""
    """PEM file of an authority: clients must show a certificate that it signed."""
    tokens: str = ""
    """File of tokens, one a line; /, /metrics and /status need one, as `Authorization: Bearer TOKEN`. Not every user of this host may read it."""
    allow: list[str] = []
    """Networks that clients may be in, as in "192.0.2.0/24"; none listed: all."""
    open_to_all: bool = False
    """Listen on an address that is not loopback although there is neither TLS nor `allow`."""
    connections_max: int = 64
    """Connections at a time; of more, the one that has waited longest without asking is closed, and counted."""


class HeartbeatConfig(Section, frozen=True):
    interval: Duration | None = Duration(60)
    """An event of our own goes the whole way into the table this often, so that what stalls is seen; more often if a service manager's watchdog waits for it. With none, only if one does."""


class MetricsConfig(Section, frozen=True):
    series_max: int = 1000
    """Label sets a metric may have, of all sources together: further values of a label are summed under `other`, further sessions are not followed."""


class LogConfig(Section, frozen=True):
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe message that is written."""
    format: Literal["console", "json"] = "console"
    """One line of text, or one JSON object, a message; on standard error."""


class UdpConfig(Section, frozen=True, tag="udp", tag_field="type"):
    format: str
    """Name of the format: heph, jets."""
    listen: str
    """host:port to receive on; port 0 lets the system choose."""
    allow: list[str] = []
    """Networks that peers may be in, as in "192.0.2.0/24"; none listed: all."""
    open_to_all: bool = False
    """Listen on an address that is not loopback although there is no `allow`."""
    receive_buffer: Size = Size(16 * MIB)
    """Asked of the kernel; what it granted is a metric, and a warning when it is less."""
    record_max: Size = Size(64 * KIB)
    """The longest record; a longer one is malformed."""
    peers_max: int = 4096
    """Peers remembered; the one silent longest is forgotten first."""
    new_peers_rate: int = 64
    """New peers a second, beyond `peers_max` at once; datagrams of further ones are dropped, and counted."""
    idle_timeout: Duration = Duration(86_400)
    """A peer silent for this long is forgotten."""


class TcpConfig(Section, frozen=True, tag="tcp", tag_field="type"):
    format: str
    """Name of the format: heph, jets."""
    listen: str
    """host:port to accept on; port 0 lets the system choose."""
    tls_certificate: str = ""
    """PEM file of a certificate and those up to its authority: connections are TLS; without, they are plain. Files are read again when they change."""
    tls_key: str = ""
    """PEM file of the certificate's key, without a password; not every user of this host may read it."""
    tls_client_authority: str = ""
    """PEM file of an authority: peers must show a certificate that it signed."""
    tokens: str = ""
    """File of tokens, one a line; connections must begin with one, as the line `tailrace-token TOKEN`. Not every user of this host may read it."""
    allow: list[str] = []
    """Networks that peers may be in, as in "192.0.2.0/24"; none listed: all."""
    open_to_all: bool = False
    """Listen on an address that is not loopback although there is neither TLS nor `allow`."""
    greeting_timeout: Duration = Duration(10)
    """A connection that takes longer than this over its TLS handshake and its token is closed."""
    record_max: Size = Size(1 * MIB)
    """The longest record; a longer one is malformed."""
    pending_max: Size = Size(32 * MIB)
    """Records that are not whole yet may take this much, those of all connections together; beyond that the one with the most is closed, and counted. At least `record_max`."""
    connections_max: int = 1024
    """Connections at a time; further ones are accepted and closed at once, and counted."""
    connections_per_peer_max: int = 256
    """Connections at a time from one address."""
    idle_timeout: Duration = Duration(3600)
    """A connection silent for this long is closed."""
    record_timeout: Duration = Duration(60)
    """A connection that takes longer than this over one record is closed."""
    garbage_max: Size = Size(1 * MIB)
    """A connection that sent this much without one readable record is closed."""


class UnixConfig(Section, frozen=True, tag="unix", tag_field="type"):
    format: str
    """Name of the format: heph, jets."""
    listen: str
    """Absolute path of the socket, which is made there; its directory must exist."""
    mode: str = "0600"
    """Who may connect: the file mode of the socket, in octal."""
    record_max: Size = Size(1 * MIB)
    """The longest record; a longer one is malformed."""
    pending_max: Size = Size(32 * MIB)
    """Records that are not whole yet may take this much, those of all connections together; beyond that the one with the most is closed, and counted. At least `record_max`."""
    connections_max: int = 1024
    """Connections at a time; further ones are accepted and closed at once, and counted."""
    connections_per_peer_max: int = 256
    """Connections at a time from one user."""
    idle_timeout: Duration = Duration(3600)
    """A connection silent for this long is closed."""
    record_timeout: Duration = Duration(60)
    """A connection that takes longer than this over one record is closed."""
    garbage_max: Size = Size(1 * MIB)
    """A connection that sent this much without one readable record is closed."""


class TailConfig(Section, frozen=True, tag="tail", tag_field="type"):
    format: str
    """Name of the format: heph, jets, ovni, dftracer, et3."""
    paths: list[str]
    """Glob patterns of files, or of directories to search with all that is below them."""
    dialect: str = "auto"
    """Which of a format's dialects the files are in; auto tells by their content."""
    record_max: Size = Size(4 * MIB)
    """The longest record; a longer one is malformed."""
    pending_max: Size = Size(32 * MIB)
    """Records that are not whole yet may take this much, those of all files together; beyond that the file with the most gives its own up, which is malformed then. At least `record_max`."""
    poll_interval: Duration = Duration(0.1)
    """How often a file that grows is looked at."""
    idle_interval: Duration = Duration(1)
    """How often directories and files that do not grow are looked at; more seldom when they are many."""
    files_max: int = 8192
    """Files followed at a time, about 24 KiB of memory each; further ones wait."""
    descriptors_max: int = 4096
    """Files held open at a time, those that grew last."""
    hole_timeout: Duration = Duration(5)
    """How long a part of a file that nobody has written yet is waited for before it is passed over."""
    rest_time: Duration = Duration(300)
    """A file that was not written for this long rests: `tailrace streams` says so, and, of a stream that has not said its end, `unfinished?`."""


ConnectionConfig = TcpConfig | UnixConfig
SourceConfig = UdpConfig | ConnectionConfig | TailConfig

DEFAULT_SOURCES: dict[str, SourceConfig] = {
    "heph_udp": UdpConfig(format="heph", listen="127.0.0.1:7701"),
    "heph_tcp": TcpConfig(format="heph", listen="127.0.0.1:7701"),
    "jets_tcp": TcpConfig(format="jets", listen="127.0.0.1:7702"),
}


class Config(Section, frozen=True):
    store: StoreConfig = StoreConfig()
    spool: SpoolConfig = SpoolConfig()
    quarantine: QuarantineConfig = QuarantineConfig()
    ledger: LedgerConfig = LedgerConfig()
    admin: AdminConfig = AdminConfig()
    heartbeat: HeartbeatConfig = HeartbeatConfig()
    metrics: MetricsConfig = MetricsConfig()
    log: LogConfig = LogConfig()
    sources: dict[str, SourceConfig] = msgspec.field(default_factory=DEFAULT_SOURCES.copy)
