"""The memory of the process: how much it may use, how much it uses, and how much a configuration lets it use at most.

`bounds` are the parts of the most. Each part is a limit times what an entry takes at most. `tests/system/test_memory.py` fills each kind of
state to its bound and holds the process to the sum.

`ProcessMemory` knows the limits: of each control group on the way up (version 2, or version 1), of the process (RLIMIT_AS, which
counts addresses), else the machine's memory.
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
"""The interpreter, the libraries (pyarrow alone has 30 MiB, and 10 more where numpy is installed), and what
decoders keep of what comes again and again. With three sources: 120 MiB at rest, 131 MiB after a first commit
of one row (2026-11-23). Later commits, checkpoints of the table and a replay load 28 MiB of the libraries more (2026-11-28)."""

PEER_BYTES, CONNECTION_BYTES, FILE_BYTES = 10 * KIB, 16 * KIB, 24 * KIB
"""Bytes that a session takes with its source's part, without the state that its producer makes it hold."""

ANNOUNCED_BYTES, DEPARTED_BYTES = 6 * KIB, 1 * KIB
"""Bytes of an announced session without a connection, and of a stream of an ended session."""

PARSED = 32
"""A record takes so many times its length while it is read. No document takes more than a record of a
file at its default length."""


class Bound(NamedTuple):
    """A part of the process's memory."""

    name: str
    bytes: int


def bounds(config: Config) -> list[Bound]:
    """Return the parts that the process's memory has at most."""
    sources = list(config.sources.values())
    ledger, store = config.ledger, config.store
    state = int(min(ledger.state_max, len(sources) * ledger.source_state_max))
    return [
        Bound("process", PROCESS_BYTES),
        # A batch is written while the next one comes. At a URL, one more waits meanwhile, or is prepared.
        Bound("rows", (2 if layout.is_local(store.path) else 3) * store.commit_bytes),
        Bound(
            "received",
            BUFFER_MAX + RECENT_MAX + PUMP_BYTES * sum(isinstance(s, UdpConfig) for s in sources),
        ),
        Bound("sessions", sum(_sessions(config, source) for source in sources)),
        Bound("streams", sum(_streams(config, source) for source in sources)),
        Bound("state", state),
        # While it is written and, at a start, read.
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
    """Return the bytes of followed streams, and of streams that ended sessions left behind."""
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
"""Version 1 of control groups says so many bytes, or more, for no limit."""


class Limit(NamedTuple):
    """Bytes, the line of /proc/self/status that counts towards them, and what to raise."""

    size: int
    used: str
    name: str


class ProcessMemory(NamedTuple):
    """The limits of this process. `root` is where /proc and /sys are looked for."""

    limits: list[Limit]
    root: Path = Path("/")

    @property
    def tightest(self) -> Limit:
        """Return the limit with the least room."""
        return max(self.limits, key=self._share)

    def share(self, more: int = 0) -> float:
        """Return the used share of the tightest limit, with so many more bytes."""
        return max(self._share(limit, more) for limit in self.limits)

    def _share(self, limit: Limit, more: int = 0) -> float:
        return (_status(self.root, limit.used) + more) / limit.size


def memory(root: Path = Path("/")) -> ProcessMemory:
    """Return the limits of this process."""
    limits = [Limit(size, "VmRSS", name) for size, name in _of_groups(root)]
    addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    if addresses != resource.RLIM_INFINITY:
        limits.append(Limit(addresses, "VmSize", "RLIMIT_AS (ulimit -v, LimitAS=)"))
    limits.append(Limit(_machine(root), "VmRSS", "the machine's memory"))
    return ProcessMemory(limits, root)


def _of_groups(root: Path) -> Iterator[tuple[int, str]]:
    """Yield the limits of this process's control groups. Inside a container the top is its own group."""
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
    """Return a figure of /proc/self/status in bytes."""
    for line in _text(root / "proc/self/status").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
