"""The memory of the process: limits, current use, and the maximum that a configuration allows.

`bounds` returns the parts of the maximum. A part is a configured limit times the maximum size of an entry.
`tests/system/test_memory.py` fills each kind of state up to its limit, and checks the process against the sum.

`ProcessMemory` has the limits of each enclosing control group (version 1 or 2), the process limit RLIMIT_AS (which
counts addresses), and the memory of the machine.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from tailrace.config.schema import Config, SourceConfig, TailConfig, UdpConfig
from tailrace.daemon.loops.sync import BUFFER_MAX
from tailrace.decoding.formats import FORMATS
from tailrace.ledger.counters import STREAM_BYTES
from tailrace.sources.connection import UNSENT_MAX
from tailrace.sources.datagrams import PUMP_BYTES
from tailrace.sources.tail.session import CACHED_BYTES
from tailrace.spool.spool import RECENT_MAX
from tailrace.store import layout

KIB, MIB = 2**10, 2**20

PROCESS_BYTES = 160 * MIB
"""Number of bytes for the interpreter, the libraries and the caches of the decoders.

pyarrow alone takes 30 MiB. A process takes 113 MiB at rest (2026-11-29), and 11 MiB more after a first commit of one row
(2026-11-23). Later commits, checkpoints of the table and a replay load 28 MiB of further libraries (2026-11-28).
"""

PEER_BYTES, CONNECTION_BYTES, FILE_BYTES = 10 * KIB, 16 * KIB, 24 * KIB
"""Number of bytes for a session of a UDP peer, a connection and a file, without the state of the decoder."""

ANNOUNCED_BYTES, DEPARTED_BYTES = 6 * KIB, 1 * KIB
"""Number of bytes for an announced session without a connection, and for a stream of an ended session."""

PARSED = 32
"""Memory for parsing a record, as a multiple of the record's length. A document takes at most as much memory as a
record of a file with the default `record_max`."""


class Bound(NamedTuple):
    """Maximum memory of one part of the process."""

    name: str
    bytes: int


def bounds(config: Config) -> list[Bound]:
    """Return the maximum memory of each part of the process."""
    sources = list(config.sources.values())
    ledger, store = config.ledger, config.store
    state = int(min(ledger.state_max, len(sources) * ledger.source_state_max))
    return [
        Bound("process", PROCESS_BYTES),
        # The next batch fills while the previous batch is written. For a store at a URL, a third batch may wait.
        Bound("rows", (2 if layout.is_local(store.path) else 3) * store.commit_bytes),
        Bound(
            "received",
            BUFFER_MAX + RECENT_MAX + PUMP_BYTES * sum(isinstance(s, UdpConfig) for s in sources),
        ),
        Bound("sessions", sum(_sessions(config, source) for source in sources)),
        Bound("streams", sum(_streams(config, source) for source in sources)),
        Bound("state", state),
        # A checkpoint is a second copy of the state while the daemon writes or reads the checkpoint.
        Bound("checkpoint", state),
        Bound("unfinished records", sum(_unfinished(source) for source in sources)),
        Bound("parsing", max((_parsed(source) for source in sources), default=0)),
    ]


def _sessions(config: Config, source: SourceConfig) -> int:
    announced = 0
    if FORMATS[source.format].acknowledge:
        announced = config.ledger.sessions_max * ANNOUNCED_BYTES
    if isinstance(source, TailConfig):
        return source.files_max * FILE_BYTES + source.inflating_max
    if isinstance(source, UdpConfig):
        return source.peers_max * PEER_BYTES + announced
    unsent = UNSENT_MAX if announced else 0
    return source.connections_max * (CONNECTION_BYTES + unsent) + announced


def _unfinished(source: SourceConfig) -> int:
    return 0 if isinstance(source, UdpConfig) else int(source.pending_max)


def _streams(config: Config, source: SourceConfig) -> int:
    """Return the maximum number of bytes for followed streams and for streams of ended sessions."""
    if not FORMATS[source.format].counter_bits:
        return 0
    departed = 0 if isinstance(source, TailConfig) else DEPARTED_BYTES
    return config.ledger.source_streams_max * (STREAM_BYTES + departed)


def _parsed(source: SourceConfig) -> int:
    if not isinstance(source, TailConfig):
        return PARSED * source.record_max
    documents = CACHED_BYTES if FORMATS[source.format].files.has_documents else 0
    return PARSED * source.record_max + documents


_NONE = 2**62
"""Minimum number of bytes that means "no limit" in control groups of version 1."""


class Limit(NamedTuple):
    """A memory limit: size in bytes, name of the line in /proc/self/status to compare, and name of the setting."""

    size: int
    used: str
    name: str


class ProcessMemory(NamedTuple):
    """The memory limits of this process. `root` is the parent directory of /proc and /sys."""

    limits: list[Limit]
    root: Path = Path("/")

    @property
    def tightest(self) -> Limit:
        """Return the limit with the largest used share."""
        return max(self.limits, key=self._share)

    def share(self, more: int = 0) -> float:
        """Return the used share of the tightest limit after `more` further bytes are allocated."""
        return max(self._share(limit, more) for limit in self.limits)

    def _share(self, limit: Limit, more: int = 0) -> float:
        return (_status(self.root, limit.used) + more) / limit.size


def memory(root: Path = Path("/")) -> ProcessMemory:
    """Return the memory limits of this process."""
    limits = [Limit(size, "VmRSS", name) for size, name in _of_groups(root)]
    addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    if addresses != resource.RLIM_INFINITY:
        limits.append(Limit(addresses, "VmSize", "RLIMIT_AS (ulimit -v, LimitAS=)"))
    limits.append(Limit(_machine(root), "VmRSS", "the machine's memory"))
    return ProcessMemory(limits, root)


def _of_groups(root: Path) -> Iterator[tuple[int, str]]:
    """Yield the size and the name of each memory limit of this process's control groups.

    Inside a container, the process's own group is mounted at the top.
    """
    mounted = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            tops, file = [mounted, mounted / "unified"], "memory.max"
        elif "memory" in controllers.split(","):
            tops, file = [mounted / "memory"], "memory.limit_in_bytes"
        else:
            continue
        within = PurePosixPath(path.lstrip("/"))
        for top in tops:
            for group in (within, *within.parents):
                text = _text(top / group / file).strip()
                if text.isdecimal() and 0 < int(text) < _NONE:
                    yield int(text), f"{file} of the control group /{group} (MemoryMax=)"


def _machine(root: Path) -> int:
    for line in _text(root / "proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return _NONE


def _status(root: Path, name: str) -> int:
    """Return a field of /proc/self/status in bytes."""
    for line in _text(root / "proc/self/status").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
