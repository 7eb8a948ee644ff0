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
    """Storage options, such as an endpoint, which are passed unchanged to the library that accesses an object store. Set secrets by environment variables."""
    commit_interval: Duration = Duration(1)
    """Maximum time from the receipt of bytes to the commit of their rows. After a sync of the spool, the collector gathers rows for at least half of this time and then commits them."""
    commit_rows: int = 500_000
    """A commit is written as soon as it holds this many rows."""
    commit_bytes: Size = Size(32 * MIB)
    """A commit is written as soon as its rows take about this many bytes of memory."""
    compact_size: Size = Size(128 * MIB)
    """Size of the files into which upkeep merges small files of the table."""
    retention_age: Duration | None = None
    """Upkeep deletes days that are older than this, except the newest day, and only while the clock is plausible; with `none`, it keeps all days."""
    retention_size: Size | None = None
    """Upkeep deletes the oldest days while the table is larger than this; with `none`, it keeps all days."""


MAIN = "main"
"""Name of a collector for which no name is configured."""


class CollectorConfig(Section, frozen=True):
    name: str = MAIN
    """Name under which the collector writes to the store: at most 64 of a to z, 0 to 9, "_" and "-". Collectors that share a store need different names. Each collector but `main` has a directory `collectors/NAME` in the store or, if the store is at a URL, in the spool's directory."""


class SpoolConfig(Section, frozen=True):
    path: str = ""
    """Local directory of the spool; a collector with a configured name uses `collectors/NAME` in it. Empty means `spool` in the collector's directory or, for a store at a URL, a directory for this URL in the per-user data directory."""
    sync_interval: Duration = Duration(0.05)
    """Maximum time until received bytes are on disk. They are decoded only then."""
    segment_size: Size = Size(64 * MIB)
    """Size of a segment file of the spool, at most an eighth of `max_size`. The collector preallocates the file in steps up to this size."""
    max_size: Size = Size(8 * GIB)
    """Approximate maximum size of the spool on disk. Before it grows larger, sources wait: TCP peers block, and datagrams queue in the kernel."""
    checkpoint_interval: Duration = Duration(30)
    """Interval at which the collector saves the decoder's state, which limits the work of a restart."""
    checkpoint_bytes: Size = Size(64 * MIB)
    """The collector also saves the decoder's state each time it has decoded this many bytes. If this state exceeds 1 MiB, the collector first decodes at least sixteen times the size of the state, or an eighth of `max_size` if that is less."""


class QuarantineConfig(Section, frozen=True):
    max_size: Size = Size(256 * MIB)
    """Maximum total size of the files with bytes that could not be decoded. Beyond it, the oldest file is deleted."""
    session_size: Size = Size(1 * MIB)
    """Maximum size of the file with one session's bytes that could not be decoded. Further bytes are counted but not kept."""


class LedgerConfig(Section, frozen=True):
    reorder_events: int = 512
    """A missing event becomes a gap once this many later events of its stream have arrived."""
    reorder_time: Duration = Duration(2)
    """Maximum time until a missing event becomes a gap."""
    streams_max: int = 8192
    """Maximum number of streams of a session whose sequence numbers are checked. Events of further streams are stored, and a gap of unknown size stands for their missing events."""
    holes_max: int = 1024
    """Maximum number of separate holes (ranges of missing sequence numbers) that are remembered for each stream. Beyond it, the oldest hole becomes a gap."""
    gap_rows_max: int = 100
    """Maximum number of gaps of a stream that get rows of their own within each `reorder_time`. Further gaps share one row, which covers a range of sequence numbers."""
    source_streams_max: int = 16_384
    """Maximum number of streams of a source whose sequence numbers are checked, about 6 KiB of memory each. Beyond it, new streams of other sessions displace streams of the session with the most streams: the collector stops checking those that have been silent longest."""
    source_holes_max: int = 262_144
    """Maximum number of holes (missing numbers that may still arrive) and gaps (missing numbers that are reported) that are remembered over all sessions of a source, at most 768 B each. Beyond it, the collector forgets the oldest hole or gap of a stream for each new hole of this stream. The events of a forgotten hole or gap stay reported as missing, even if they arrive later."""
    resume_time: Duration = Duration(600)
    """Time for which an announced session is remembered after its last connection ended. If the client has not ended the session itself, the session ends then."""
    sessions_max: int = 1024
    """Maximum number of announced sessions of a source that are remembered without a connection. Beyond it, the session that has been without a connection longest is forgotten."""
    new_sessions_rate: int = 1000
    """Maximum number of sessions that one host may begin in a second. The host may begin one more for each 100 events that it sends. The first session of a connection or of a sender's address does not count. If a host begins more, the collector keeps the bytes of the session in the quarantine as malformed (`too_many_sessions`), and closes the connection. Files have no such limit."""
    references_max: int = 65_536
    """Maximum number of record ids (as ranges), and of references to unknown records, that are remembered for each session."""
    open_spans_max: int = 65_536
    """Maximum number of spans without an end that are remembered for each session."""
    session_state_max: Size = Size(32 * MIB)
    """Maximum memory for the state of one session that grows with its events: open spans, references, streams, holes, names. Beyond it, the oldest entries are evicted and counted, and a row states this."""
    source_state_max: Size = Size(48 * MIB)
    """Maximum memory for the state that grows with the events (see `session_state_max`), of all sessions of a source together. Beyond it, the sessions with the most state evict entries."""
    state_max: Size = Size(64 * MIB)
    """Maximum memory for the state that grows with the events (see `session_state_max`), of all sources together."""


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
    """Maximum number of concurrent connections. Beyond it, the oldest connection that waits for its client is closed and counted."""


class HeartbeatConfig(Section, frozen=True):
    interval: Duration | None = Duration(60)
    """Interval at which the collector sends an event of its own through the whole pipeline, so that a stall becomes visible; shorter if a service manager's watchdog requires it. With `none`, it sends heartbeats only as the watchdog requires."""


class JobConfig(Section, frozen=True):
    id: str | None = None
    """Id of the job whose events this collector receives: the scheduler's job id, a dot and the step. A session gets this job unless its producer names another."""
    node: str | None = None
    """Name of the node in this job, for sessions whose producer does not state its node. If this or `id` is set, a followed file below a directory `rank-N` belongs to rank N."""


class MetricsConfig(Section, frozen=True):
    series_max: int = 1000
    """Maximum number of label combinations that a metric may have over all sources. Further values of a label are summed under `other`. Further sessions have no metrics of their own."""


class LogConfig(Section, frozen=True):
    level: Literal["debug", "info", "warning", "error"] = "info"
    """Severity of the least severe messages that are written."""
    format: Literal["console", "json"] = "console"
    """Form of each message on standard error: one line of text, or one JSON object."""


class UdpConfig(Section, frozen=True, tag="udp", tag_field="type"):
    format: str
    """Format of the received data: heph, jets."""
    listen: str
    """host:port to receive on; port 0 lets the system choose. localhost is 127.0.0.1 and ::1."""
    allow: list[str] = []
    """Networks that peers may be in, as in "192.0.2.0/24"; an empty list allows all."""
    open_to_all: bool = False
    """Listen on an address that is not loopback even without `allow`."""
    same_user: bool = False
    """Take datagrams only from sockets of the collector's user or root on this host. Other datagrams are dropped and counted."""
    reuse_port: bool = False
    """Share the address with other collectors of this user and host that set the same key (SO_REUSEPORT). The kernel gives each peer to one of these collectors. It may give a peer to another collector when the number of these collectors changes."""
    receive_buffer: Size = Size(16 * MIB)
    """Size of the socket's receive buffer that the collector requests from the kernel. A metric shows what the kernel granted, and the collector warns if that is less."""
    record_max: Size = Size(64 * KIB)
    """Maximum size of a record. A longer record is malformed."""
    peers_max: int = 4096
    """Maximum number of peers that are remembered. Beyond it, the peer that has been silent longest is evicted."""
    new_peers_rate: int = 64
    """Maximum number of new peers in a second, after a burst of `peers_max`. Datagrams of further peers are dropped and counted."""
    idle_timeout: Duration = Duration(86_400)
    """Time after which a silent peer is forgotten."""


class TcpConfig(Section, frozen=True, tag="tcp", tag_field="type"):
    format: str
    """Format of the received data: heph, jets."""
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
    """Take connections only from the collector's user or root on this host. These users need no token. Other connections are closed and counted. If `tokens` is set, a connection with a token is also taken if the kernel does not know its user, because the other end is closed or on another host."""
    reuse_port: bool = False
    """Share the address with other collectors of this user and host that set the same key (SO_REUSEPORT). The kernel gives each connection to one of these collectors. It may choose another collector when the number of these collectors changes."""
    greeting_timeout: Duration = Duration(10)
    """A connection is closed if its TLS handshake and its token take longer than this."""
    record_max: Size = Size(1 * MIB)
    """Maximum size of a record. A longer record is malformed."""
    pending_max: Size = Size(32 * MIB)
    """Maximum memory for unfinished records of all connections together, at least `record_max`. Beyond it, the connection with the most unfinished bytes is closed and counted."""
    connections_max: int = 1024
    """Maximum number of concurrent connections. Further connections are closed at once and counted."""
    connections_per_peer_max: int = 256
    """Maximum number of concurrent connections from one address."""
    idle_timeout: Duration = Duration(3600)
    """Time after which a silent connection is closed."""
    record_timeout: Duration = Duration(60)
    """Maximum time for the receipt of one record. A connection that takes longer is closed."""
    garbage_max: Size = Size(1 * MIB)
    """Number of bytes without a readable record after which a connection is closed."""


class UnixConfig(Section, frozen=True, tag="unix", tag_field="type"):
    format: str
    """Format of the received data: heph, jets."""
    listen: str
    """Absolute path of the socket, which the collector creates. Its directory must exist."""
    mode: str = "0600"
    """File mode of the socket, in octal, which decides who may connect."""
    record_max: Size = Size(1 * MIB)
    """Maximum size of a record. A longer record is malformed."""
    pending_max: Size = Size(32 * MIB)
    """Maximum memory for unfinished records of all connections together, at least `record_max`. Beyond it, the connection with the most unfinished bytes is closed and counted."""
    connections_max: int = 1024
    """Maximum number of concurrent connections. Further connections are closed at once and counted."""
    connections_per_peer_max: int = 256
    """Maximum number of concurrent connections from one user."""
    idle_timeout: Duration = Duration(3600)
    """Time after which a silent connection is closed."""
    record_timeout: Duration = Duration(60)
    """Maximum time for the receipt of one record. A connection that takes longer is closed."""
    garbage_max: Size = Size(1 * MIB)
    """Number of bytes without a readable record after which a connection is closed."""


INFLATING_MIN = Size(MIB)
"""Minimum value of the key `inflating_max`. It suffices to decompress gzip files one after another."""


class TailConfig(Section, frozen=True, tag="tail", tag_field="type"):
    format: str
    """Format of the files: heph, jets, ovni, dftracer, et3."""
    paths: list[str]
    """Glob patterns. If a pattern is a directory, or its last part is `*`, it finds files with the format's usual names, and other files whose content is of the format. A file whose content shows another format is left out, unless `paths` lists exactly its path. A hidden file is found only if the last part of the pattern contains characters of the file's name, as `.*.log` does."""
    dialect: str = "auto"
    """The dialect of the format that the files are in; auto detects it from their content."""
    record_max: Size = Size(4 * MIB)
    """Maximum size of a record. A longer record is malformed."""
    pending_max: Size = Size(32 * MIB)
    """Maximum memory for unfinished records of all files together, at least `record_max`. Beyond it, the file with the most unfinished bytes gives up its record, which is then malformed."""
    poll_interval: Duration = Duration(0.1)
    """Interval at which a growing file is checked for new bytes."""
    idle_interval: Duration = Duration(1)
    """Interval at which directories and files that do not grow are checked; longer if there are many."""
    files_max: int = 8192
    """Maximum number of files that are followed at the same time, about 24 KiB of memory each. Further files wait."""
    inflating_max: Size = Size(8 * MIB)
    """Maximum memory for the decompressors of gzip files that are still being written, about 48 KiB each. If it is too small for all files, those that were read longest ago lose their decompressors. When such a file grows, its last gzip member is decompressed again from its beginning, which may have to wait. At least 1 MiB."""
    descriptors_max: int = 4096
    """Maximum number of files that are open at the same time. Beyond it, the file whose last read is the oldest is closed. A file that has not changed for a minute, or that rests (see `rest_time`), is closed, too."""
    hole_timeout: Duration = Duration(5)
    """Time to wait for a part of a file that has not been written yet, before it is skipped."""
    rest_time: Duration = Duration(300)
    """A file that has not been written for this long rests. `tailrace streams` then shows it as silent or, if its stream has not stated its end, as `unfinished?`."""


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
