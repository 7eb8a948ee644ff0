"""Define all configuration keys with type, default and meaning. No other module does.

The field name is the key, and the string under a field is its documentation. `config/tailrace.toml` lists the
keys for users; a test compares both.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tailrace.units import Duration, Size

KIB, MIB, GIB = 2**10, 2**20, 2**30

OWN_SOURCE = "tailrace"
"""Name of the source to which the daemon's own rows belong. No configured source can have this name."""


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the configuration file, such as `[store]`. Unknown keys in it are refused."""


class StoreConfig(Section, frozen=True):
    path: str = ""
    """Directory or URL (s3://bucket/prefix) of the table; empty means the per-user data directory."""
    options: dict[str, str] = {}
    """Options of an object store, passed on unchanged. Secrets belong in the environment."""
    commit_interval: Duration = Duration(1)
    """The collector commits rows at most this long after it received them, but gathers rows for at least half of this after a sync of the spool."""
    commit_rows: int = 500_000
    """A commit is written as soon as it holds this many rows."""
    commit_bytes: Size = Size(32 * MIB)
    """A commit is written as soon as its rows take about this many bytes of memory."""
    compact_size: Size = Size(128 * MIB)
    """Upkeep merges small files into files of this size."""
    retention_age: Duration | None = None
    """Days older than this are deleted, except the newest day, and only while the clock is plausible; none keeps all days."""
    retention_size: Size | None = None
    """The oldest days are deleted while the table is larger than this; none keeps all days."""


MAIN = "main"
"""Name of a collector for which no name is configured."""


class CollectorConfig(Section, frozen=True):
    name: str = MAIN
    """The name under which the collector writes to the store. Collectors that share a store need different names, at most 64 of a to z, 0 to 9, "_" and "-"; each but `main` has a directory `collectors/NAME` of its own in the store, or in the spool's."""


class SpoolConfig(Section, frozen=True):
    path: str = ""
    """Local directory of the spool, of which a collector with a name takes `collectors/NAME`; empty means `spool` in the collector's directory or, for a URL, a directory of its own in the per-user data directory."""
    sync_interval: Duration = Duration(0.05)
    """Received bytes are on disk after at most this long. They are decoded only then."""
    segment_size: Size = Size(64 * MIB)
    """Size of a segment file of the log, to which its preallocated room grows; an eighth of `max_size` at most."""
    max_size: Size = Size(8 * GIB)
    """The spool takes at most about this much disk. Before it takes more, sources wait: TCP peers block, and datagrams queue in the kernel."""
    checkpoint_interval: Duration = Duration(30)
    """The decoder's state is saved this often, which bounds the work of a restart."""
    checkpoint_bytes: Size = Size(64 * MIB)
    """The collector also saves the decoder's state after it has decoded this many bytes. Where sessions hold more than 1 MiB of state, it waits for sixteen times that state if that is more."""


class QuarantineConfig(Section, frozen=True):
    max_size: Size = Size(256 * MIB)
    """Bytes that could not be decoded are kept up to this much in total; beyond it, the oldest file is deleted."""
    session_size: Size = Size(1 * MIB)
    """Bytes that are kept of one session. Further bytes are counted but not kept."""


class LedgerConfig(Section, frozen=True):
    reorder_events: int = 512
    """A missing event becomes a gap once this many later events of its stream have arrived."""
    reorder_time: Duration = Duration(2)
    """A missing event becomes a gap after this long at the latest."""
    streams_max: int = 8192
    """Streams of a session whose sequence numbers are followed. Events of further streams are stored, and a gap of unknown size says that nobody knows what those streams lack."""
    holes_max: int = 1024
    """Separate holes remembered for each stream. Beyond that, the oldest hole is closed."""
    gap_rows_max: int = 100
    """Gaps of a stream that get rows of their own within each `reorder_time`. Further gaps share one row over a range of numbers."""
    source_streams_max: int = 16_384
    """Streams that are followed over all sessions of a source, about 6 KiB of memory each. When all places are taken, the session that holds the most gives way to a session that holds fewer: the streams of the former that were silent longest are no longer followed."""
    source_holes_max: int = 262_144
    """Holes and gaps remembered over all sessions of a source, at most 768 B each. Beyond that, a stream with a new hole forgets its oldest, which then cannot be healed."""
    resume_time: Duration = Duration(600)
    """A session that its client announced is remembered this long after its last connection ended. If the client has not said goodbye, the session ends then."""
    sessions_max: int = 1024
    """Announced sessions of a source that are remembered without a connection. Beyond that, the session that was left first is forgotten."""
    new_sessions_rate: int = 1000
    """Sessions that one host may begin in a second, and one more for each 100 events that it sends. The first session of a connection or an address does not count. Bytes beyond the limit are malformed (`too_many_sessions`): the collector keeps them in the quarantine, and closes the connection. Files have no such limit."""
    references_max: int = 65_536
    """Record ids (as ranges) and unknown references remembered for each session."""
    open_spans_max: int = 65_536
    """Spans without an end that are remembered for each session."""
    session_state_max: Size = Size(32 * MIB)
    """Memory for the state that one session's producer makes grow: open spans, references, streams, holes, names. Beyond it, the oldest entries are evicted and counted, and a row says so."""
    source_state_max: Size = Size(48 * MIB)
    """The same limit for all sessions of a source together. The sessions that hold the most give way."""
    state_max: Size = Size(64 * MIB)
    """The same limit for all sources together."""


class AdminConfig(Section, frozen=True):
    listen: str = "127.0.0.1:9464"
    """host:port of /status, /metrics, /healthz and /readyz, and of / which lists them; port 0 lets the system choose. localhost is 127.0.0.1 and ::1."""
    tls_certificate: str = ""
    """PEM file of a certificate and its chain up to the authority: connections use TLS. Without it, connections are plain. The files are read again when they change."""
    tls_key: str = ""
    """PEM file of the certificate's key, without a password. It must not be readable by every user of this host."""
    tls_client_authority: str = ""
    """PEM file of an authority. Clients must show a certificate that it signed."""
    tokens: str = ""
    """File of tokens, one a line. Requests to /, /metrics and /status need one, as `Authorization: Bearer TOKEN`. The file must not be readable by every user of this host."""
    allow: list[str] = []
    """Networks that clients may be in, as in "192.0.2.0/24"; an empty list allows all."""
    open_to_all: bool = False
    """Listen on an address that is not loopback even without TLS and without `allow`."""
    connections_max: int = 64
    """Connections at a time. Beyond that, the oldest connection that waits for its client is closed and counted."""


class HeartbeatConfig(Section, frozen=True):
    interval: Duration | None = Duration(60)
    """The collector sends an event of its own through the whole pipeline this often, so that a stall shows; more often if a service manager's watchdog requires it. With none, only the watchdog causes heartbeats."""


class JobConfig(Section, frozen=True):
    id: str | None = None
    """The job whose events this collector takes: the scheduler's id, a dot and the step. A session gets this job unless its producer names another."""
    node: str | None = None
    """The node's name in that job, for sessions whose producer does not say its node. With this or `id`, a followed file below a directory `rank-N` is of rank N."""


class MetricsConfig(Section, frozen=True):
    series_max: int = 1000
    """Label sets that a metric may have over all sources. Further values of a label are summed under `other`, and further sessions are not followed."""


class LogConfig(Section, frozen=True):
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe message that is written."""
    format: Literal["console", "json"] = "console"
    """Each message is one line of text or one JSON object, on standard error."""


class UdpConfig(Section, frozen=True, tag="udp", tag_field="type"):
    format: str
    """Name of the format: heph, jets."""
    listen: str
    """host:port to receive on; port 0 lets the system choose. localhost is 127.0.0.1 and ::1."""
    allow: list[str] = []
    """Networks that peers may be in, as in "192.0.2.0/24"; an empty list allows all."""
    open_to_all: bool = False
    """Listen on an address that is not loopback even without `allow`."""
    same_user: bool = False
    """Take datagrams only from sockets of the collector's user or root on this host. Other datagrams are dropped and counted."""
    reuse_port: bool = False
    """Share the address with other collectors of this user and host that set the same key: the kernel gives each peer to one of them, and to another one when their number changes (SO_REUSEPORT)."""
    receive_buffer: Size = Size(16 * MIB)
    """Size of the socket's buffer that is requested from the kernel. A metric shows what the kernel granted, and a warning says if it is less."""
    record_max: Size = Size(64 * KIB)
    """The longest record. A longer record is malformed."""
    peers_max: int = 4096
    """Peers that are remembered. Beyond that, the peer that was silent longest is evicted."""
    new_peers_rate: int = 64
    """New peers a second, after a burst of `peers_max`. Datagrams of further peers are dropped and counted."""
    idle_timeout: Duration = Duration(86_400)
    """A peer that is silent for this long is forgotten."""


class TcpConfig(Section, frozen=True, tag="tcp", tag_field="type"):
    format: str
    """Name of the format: heph, jets."""
    listen: str
    """host:port to accept on; port 0 lets the system choose. localhost is 127.0.0.1 and ::1."""
    tls_certificate: str = ""
    """PEM file of a certificate and its chain up to the authority: connections use TLS. Without it, connections are plain. The files are read again when they change."""
    tls_key: str = ""
    """PEM file of the certificate's key, without a password. It must not be readable by every user of this host."""
    tls_client_authority: str = ""
    """PEM file of an authority. Peers must show a certificate that it signed."""
    tokens: str = ""
    """File of tokens, one a line. A connection must begin with one, as the line `tailrace-token TOKEN`. The file must not be readable by every user of this host."""
    allow: list[str] = []
    """Networks that peers may be in, as in "192.0.2.0/24"; an empty list allows all."""
    open_to_all: bool = False
    """Listen on an address that is not loopback even without TLS and without `allow`."""
    same_user: bool = False
    """Take connections only from the collector's user or root on this host, who need no token. Other connections are closed and counted. If the kernel names no user, because the other end is closed or on another host, a token decides, provided that `tokens` is set."""
    reuse_port: bool = False
    """Share the address with other collectors of this user and host that set the same key: the kernel gives each connection to one of them, and to another one when their number changes (SO_REUSEPORT)."""
    greeting_timeout: Duration = Duration(10)
    """A connection is closed if its TLS handshake and its token take longer than this."""
    record_max: Size = Size(1 * MIB)
    """The longest record. A longer record is malformed."""
    pending_max: Size = Size(32 * MIB)
    """Memory for unfinished records of all connections together. Beyond it, the connection with the most is closed and counted. At least `record_max`."""
    connections_max: int = 1024
    """Connections at a time. Further connections are closed at once and counted."""
    connections_per_peer_max: int = 256
    """Connections at a time from one address."""
    idle_timeout: Duration = Duration(3600)
    """A connection that is silent for this long is closed."""
    record_timeout: Duration = Duration(60)
    """A connection is closed if one record takes longer than this."""
    garbage_max: Size = Size(1 * MIB)
    """A connection is closed if it sends this much without one readable record."""


class UnixConfig(Section, frozen=True, tag="unix", tag_field="type"):
    format: str
    """Name of the format: heph, jets."""
    listen: str
    """Absolute path of the socket, which the collector creates. Its directory must exist."""
    mode: str = "0600"
    """File mode of the socket, in octal, which decides who may connect."""
    record_max: Size = Size(1 * MIB)
    """The longest record. A longer record is malformed."""
    pending_max: Size = Size(32 * MIB)
    """Memory for unfinished records of all connections together. Beyond it, the connection with the most is closed and counted. At least `record_max`."""
    connections_max: int = 1024
    """Connections at a time. Further connections are closed at once and counted."""
    connections_per_peer_max: int = 256
    """Connections at a time from one user."""
    idle_timeout: Duration = Duration(3600)
    """A connection that is silent for this long is closed."""
    record_timeout: Duration = Duration(60)
    """A connection is closed if one record takes longer than this."""
    garbage_max: Size = Size(1 * MIB)
    """A connection is closed if it sends this much without one readable record."""


INFLATING_MIN = Size(MIB)
"""Minimum value of `inflating_max`, with which gzip files can still be decompressed one after another."""


class TailConfig(Section, frozen=True, tag="tail", tag_field="type"):
    format: str
    """Name of the format: heph, jets, ovni, dftracer, et3."""
    paths: list[str]
    """Glob patterns. A directory, or a pattern whose last part is `*`, finds files with the format's usual names, and others whose content is of the format. A hidden file is found only if the pattern's last part spells a part of its name, as `.*.log` does."""
    dialect: str = "auto"
    """The dialect of the format that the files are in; auto detects it from their content."""
    record_max: Size = Size(4 * MIB)
    """The longest record. A longer record is malformed."""
    pending_max: Size = Size(32 * MIB)
    """Memory for unfinished records of all files together. Beyond it, the file with the most gives up its record, which is then malformed. At least `record_max`."""
    poll_interval: Duration = Duration(0.1)
    """How often a growing file is checked."""
    idle_interval: Duration = Duration(1)
    """How often directories and files that do not grow are checked; less often if there are many."""
    files_max: int = 8192
    """Files followed at a time, about 24 KiB of memory each. Further files wait."""
    inflating_max: Size = Size(8 * MIB)
    """Memory for the decompressors of gzip files that are still being written, about 48 KiB each. If it is too small for all, the files that were read longest ago lose theirs. When such a file grows, its last gzip member is decompressed again from its beginning, which may have to wait. At least 1 MiB."""
    descriptors_max: int = 4096
    """Files held open at a time: those that grew last. A file that rests, or has not changed for a minute, is closed."""
    hole_timeout: Duration = Duration(5)
    """How long to wait for a part of a file that nobody has written yet, before it is skipped."""
    rest_time: Duration = Duration(300)
    """A file that was not written for this long rests. `tailrace streams` then shows it as silent or, if its stream has not said its end, as `unfinished?`."""


ConnectionConfig = TcpConfig | UnixConfig
SourceConfig = UdpConfig | ConnectionConfig | TailConfig

DEFAULT_SOURCES: dict[str, SourceConfig] = {
    "heph_udp": UdpConfig(format="heph", listen="127.0.0.1:7701"),
    "heph_tcp": TcpConfig(format="heph", listen="127.0.0.1:7701"),
    "jets_tcp": TcpConfig(format="jets", listen="127.0.0.1:7702"),
}


class Config(Section, frozen=True):
    store: StoreConfig = StoreConfig()
    collector: CollectorConfig = CollectorConfig()
    spool: SpoolConfig = SpoolConfig()
    quarantine: QuarantineConfig = QuarantineConfig()
    ledger: LedgerConfig = LedgerConfig()
    admin: AdminConfig = AdminConfig()
    heartbeat: HeartbeatConfig = HeartbeatConfig()
    job: JobConfig = JobConfig()
    metrics: MetricsConfig = MetricsConfig()
    log: LogConfig = LogConfig()
    sources: dict[str, SourceConfig] = msgspec.field(default_factory=DEFAULT_SOURCES.copy)
