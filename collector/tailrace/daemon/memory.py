"""Determine the memory limits of the process, and the maximum memory that a configuration allows it to use.

`bounds` returns this maximum for each part of the process: a configured number of items times the maximum size of one
item. `tests/system/test_memory.py` compares the sum with the memory of a process at its limits."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from tailrace.config.schema import Config, SourceConfig, TailConfig, UdpConfig
from tailrace.decoding.formats import FORMATS
from tailrace.filesystem import is_local
from tailrace.ledger.counters import STREAM_BYTES
from tailrace.sources.source import PUMP_BYTES, UNSENT_MAX
from tailrace.sources.tail.session import CACHED_BYTES
from tailrace.spool.spool import BUFFER_MAX, RECENT_MAX

KIB, MIB = 2**10, 2**20

PROCESS_BYTES = 160 * MIB
"""Memory (bytes) of the interpreter, the libraries and the caches of the decoders.

A process takes 113 MiB at rest (2026-11-29), 11 MiB more after a first commit of one row (2026-11-23), and 28 MiB more
for libraries that later commits, checkpoints of the table and a replay load (2026-11-28)."""

PEER_BYTES, CONNECTION_BYTES, FILE_BYTES = 10 * KIB, 16 * KIB, 24 * KIB
"""Memory (bytes) of a UDP peer's session, of a connection and of a followed file, each without the state of its
decoder."""

ANNOUNCED_BYTES, DEPARTED_BYTES = 6 * KIB, 1 * KIB
"""Memory (bytes) of a session that a client announced by an id and that has no connection, and of one stream of an
ended session."""

PARSED = 32
"""Maximum memory for parsing a record, as a multiple of the record's length."""


class Bound(NamedTuple):
    """The name of one part of the process, and the maximum memory (bytes) that it may use."""

    name: str
    bytes: int


def bounds(config: Config) -> list[Bound]:
    """Return the maximum memory that the configuration allows, for each part of the process."""
    sources = list(config.sources.values())
    ledger, store = config.ledger, config.store
    state = int(min(ledger.state_max, len(sources) * ledger.source_state_max))
    return [
        Bound("process", PROCESS_BYTES),
        # One batch fills while another one is written. For a store at a URL, a third batch may wait in between.
        Bound("rows", (2 if is_local(store.path) else 3) * store.commit_bytes),
        Bound(
            "received",
            BUFFER_MAX + RECENT_MAX + PUMP_BYTES * sum(isinstance(s, UdpConfig) for s in sources),
        ),
        Bound("sessions", sum(_sessions(config, source) for source in sources)),
        Bound("streams", sum(_streams(config, source) for source in sources)),
        Bound("state", state),
        # A second copy of the state is in memory while the daemon writes or reads a checkpoint.
        Bound("checkpoint", state),
        Bound(
            "unfinished records",
            sum(int(s.pending_max) for s in sources if not isinstance(s, UdpConfig)),
        ),
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


def _streams(config: Config, source: SourceConfig) -> int:
    """Return the maximum memory (bytes) for the streams of a source, including those of ended sessions."""
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
"""A limit (bytes) of a control group of version 1 that is at least this large stands for no limit."""


class Limit(NamedTuple):
    """A memory limit: its size in bytes, the field of /proc/self/status that shows its use, and its name in messages."""

    size: int
    used: str
    name: str


class ProcessMemory(NamedTuple):
    """The memory limits that apply to this process. `root` is the directory that contains proc/ and sys/."""

    limits: list[Limit]
    root: Path = Path("/")

    @property
    def tightest(self) -> Limit:
        """Return the limit of which the process has used the largest share."""
        return max(self.limits, key=self._share)

    def share(self, more: int = 0) -> float:
        """Return the largest used share (1.0 for all) of any memory limit, with `more` bytes in addition."""
        return max(self._share(limit, more) for limit in self.limits)

    def _share(self, limit: Limit, more: int = 0) -> float:
        used = _field(self.root / "proc/self/status", limit.used) or 0
        return (used + more) / limit.size


def memory(root: Path = Path("/")) -> ProcessMemory:
    """Return the memory limits that apply to this process."""
    limits = [Limit(size, "VmRSS", name) for size, name in _of_groups(root)]
    addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    if addresses != resource.RLIM_INFINITY:
        limits.append(Limit(addresses, "VmSize", "RLIMIT_AS (ulimit -v, LimitAS=)"))
    machine = _field(root / "proc/meminfo", "MemTotal") or _NONE
    limits.append(Limit(machine, "VmRSS", "the machine's memory"))
    return ProcessMemory(limits, root)


def _of_groups(root: Path) -> Iterator[tuple[int, str]]:
    """Yield size (bytes) and name of each memory limit in the control groups that contain this process."""
    # In a container, the control group of the process may be mounted as the top directory, so look there, too.
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


def _field(path: Path, name: str) -> int | None:
    """Return a field (bytes) of a file of /proc that states sizes in KiB, or None if the field is missing."""
    for line in _text(path).splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
