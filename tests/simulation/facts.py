"""A scenario: what happens and when, as data.

A seed makes a scenario (`generate`), `play` plays it, `shrink` leaves out what a failure does not need.
Times are nanoseconds since the world began. A scenario is JSON on disk.
"""

from __future__ import annotations

import msgspec


class _Fact(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    at: int


class Begin(_Fact):
    """A program begins; who was at the address before is killed."""

    program: int
    transport: str
    """`udp` or `tcp`: a client's. Without a client: `raw` (Heph in datagrams), `heph-tcp`, `jets-udp`, `jets-tcp`."""
    address: str
    buffer: int
    """Bytes that the client may keep."""
    acknowledge: bool = True
    """Whether the client asks what has arrived."""
    introduced: bool = False
    """Whether the program's first datagram arrives once, at once, and before all others of the program."""
    first: int = 0
    """Number of the first event of each stream, of a program without a client."""
    overtaken: bool = False
    """Whether other events of a stream may arrive before its first one, where that is not number 0."""
    clock: int = 0
    """How far the wall clock of the program's host is ahead (ns)."""
    pace: int = 0
    """How much faster the clocks of the program's host go (parts in a million)."""
    alone: bool = False
    """Whether the first words of a program without a client travel in a datagram of their own, and once."""
    on: int | None = None
    """The program whose connection this program goes on with."""


class Emit(_Fact):
    """A program emits events of a stream, over some time (ns)."""

    program: int
    stream: int
    count: int
    over: int = 0
    beside: bool = False
    """Whether another thread of the program does so, whatever the program is doing."""


class Flush(_Fact):
    program: int
    seconds: float


class Close(_Fact):
    """A program ends in order."""

    program: int
    seconds: float


class Kill(_Fact):
    """A program ends without a word, whatever it is doing."""

    program: int


class _OfCollector(_Fact, frozen=True, tag=True, kw_only=True):
    collector: int = 0
    """To which collector it happens."""


class KillCollector(_OfCollector, frozen=True, tag=True, kw_only=True):
    power: bool = False
    """Whether the machine's power is cut: the disk loses what was not synced, or parts of it."""
    changes: int | None = None
    """The process ends in the middle of a change to its disk, after so many more changes; its service
    manager starts the process again."""


class StartCollector(_OfCollector, frozen=True, tag=True, kw_only=True):
    pass


class Suspend(_OfCollector, frozen=True, tag=True, kw_only=True):
    """The collector does nothing for some time (ns), while the kernel goes on receiving."""

    duration: int


class FullDisk(_OfCollector, frozen=True, tag=True, kw_only=True):
    """The collector's disk takes nothing for some time (ns)."""

    duration: int


class DiskFails(_OfCollector, frozen=True, tag=True, kw_only=True):
    """The next call of a kind, `write` or `sync`, that the collector makes to its disk fails (EIO)."""

    call: str


class Rot(_Fact):
    """Bytes rot on the collector's disk, in a file that nobody writes any more, if there is such a file."""

    file: str
    """`segment`: a closed one of the spool; `checkpoint`: the newest."""
    share: float
    """Which segment, and where in the file, as a share of what there is."""


class LoseName(_Fact):
    """Somebody takes away a name by which the running collector finds what it holds."""

    what: str
    """`lock`: of the spool; `store-lock`; `spare`: the segment that comes next; `segment`: the newest; `closed`: the
    oldest, if there is another one; `spool`, `store`: the directory with all in it."""
    how: str
    """`removed`, `renamed`, or `replaced` by a copy of the file, or an empty directory."""
    undone: bool = False
    """Whether the name leads there again before the next start."""
    beside: bool = False
    """Whether a second collector is started at once."""
    call: int = 0
    """Happens just before the collector calls its disk so many times more; 0: between two of its steps."""

    @property
    def is_fatal(self) -> bool:
        """Return whether the collector cannot go on."""
        return self.what in {"segment", "closed", "spool", "store"}

    @property
    def is_for_good(self) -> bool:
        """Return whether the next start does not find what was acknowledged and is not in the table."""
        return self.is_fatal and not self.undone


class TableDown(_Fact):
    """Commits fail for some time (ns); `landed`: they are in the table all the same."""

    duration: int
    landed: bool


class Partition(_OfCollector, frozen=True, tag=True, kw_only=True):
    """The collector's network carries nothing for some time (ns)."""

    duration: int


class Reset(_Fact):
    """The network resets a program's connection."""

    program: int


OfCollector = KillCollector | StartCollector | Suspend | FullDisk | DiskFails | Partition


class Move(_Fact, frozen=True, tag=True, kw_only=True):
    """A load balancer moves a program's client to another collector."""

    program: int
    to: int | None
    """None: each datagram to any of them, and each connection to any that accepts."""
    cut: int | None = None
    """The client's connection breaks now, and for its collector after so many nanoseconds; None: it stays."""


class _OfTrace(_Fact, frozen=True, tag=True, kw_only=True):
    trace: int
    call: int = 0
    """Happens just before the collector calls the system so many times more; 0: between two of its steps."""


class BeginTrace(_OfTrace, frozen=True, tag=True, kw_only=True):
    """A program begins to write a file."""

    format: str
    path: str
    """Below the directory of the format's source; an older file there is emptied or makes way."""
    anew: bool = True
    """A file of its own instead of the older one emptied."""
    packed: bool = False
    """The program writes gzip members."""


class WriteTrace(_OfTrace, frozen=True, tag=True, kw_only=True):
    """A program writes records to its file."""

    count: int
    held: int = 0
    """Bytes at the end that wait for the next write: a record or a member is torn."""
    garbage: int = 0
    """Pieces that nobody can read, among the records."""
    skipped: int = 0
    """Numbers left out, among the records."""


class EndTrace(_OfTrace, frozen=True, tag=True, kw_only=True):
    """A program has written all, and ends."""


class KillWriter(_OfTrace, frozen=True, tag=True, kw_only=True):
    """A program ends; what it held is never written."""


class MoveTrace(_OfTrace, frozen=True, tag=True, kw_only=True):
    path: str


class PackTrace(_OfTrace, frozen=True, tag=True, kw_only=True):
    """gzip makes a compressed copy, over some time (ns), and then deletes the file."""

    over: int
    cut: int = 0
    """Bytes of content in the first member; 0 for one member."""


class DeleteTrace(_OfTrace, frozen=True, tag=True, kw_only=True):
    pass


OfTrace = BeginTrace | WriteTrace | EndTrace | KillWriter | MoveTrace | PackTrace | DeleteTrace


class Flood(_Fact):
    """A peer connects, and sends one epoch after another."""

    number: int
    epochs: int


class Garble(_Fact):
    """A program without a client sends what cannot be read (see `producers.GARBLES`)."""

    program: int
    how: str


class Discard(_Fact):
    """A program without a client discards events of a stream, and `unnumbered` others without numbers, and reports both."""

    program: int
    stream: int
    count: int
    unnumbered: int = 0


class Vanish(_Fact):
    """A program's host is gone: its connection neither ends nor breaks."""

    program: int


class Tear(_Fact):
    """A program finds its connection broken; the collector learns that later (ns)."""

    program: int
    later: int


class Deaf(_Fact):
    """A program reads nothing for some time (ns)."""

    program: int
    duration: int


class SetClock(_Fact):
    """Somebody sets the wall clock of the collector's host ahead by some time (ns)."""

    by: int


class Drift(_Fact):
    """The wall clock of the collector's host goes faster from now on (parts in a million)."""

    pace: int


class Reload(_Fact):
    """The collector takes another configuration: the limits of new sessions, and which source it has not
    for some time (ns). A source of files may have another name afterwards."""

    reorder_events: int
    reorder_seconds: float
    without: str = ""
    duration: int = 0
    renamed: str = ""


Fact = (
    OfTrace
    | Move
    | Begin
    | Emit
    | Flush
    | Close
    | Kill
    | KillCollector
    | StartCollector
    | Suspend
    | FullDisk
    | DiskFails
    | Rot
    | LoseName
    | TableDown
    | Partition
    | Reset
    | Flood
    | Garble
    | Discard
    | Vanish
    | Tear
    | Deaf
    | SetClock
    | Drift
    | Reload
)


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """How the collector follows files, and what its file system is like."""

    tick: int = 4_000_000
    """The times of files are multiples of so many nanoseconds."""
    reuses: bool = False
    """A new file may get the inode of a deleted one."""
    descriptors: int = 4096
    places: int = 8192
    """Files followed at a time."""
    sources: int = 1
    """How many sources lead to the files of each format."""


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    facts: list[Fact]
    fates: dict[str, list[int]]
    """By `up/17` (to the collector) or `down/17`: delays (ns) of the copies of the 17th datagram; the network
    loses a datagram without copies. All other datagrams arrive once, after the usual delay."""
    queue: int = 100_000
    """Datagrams for which the collector's kernel has room."""
    places: int = 16_384
    """Streams of a source that the collector follows at a time."""
    limits: dict[str, float] = {}
    """Other limits of the collector's ledger that are not the defaults, by name (see `limits`)."""
    files: Files = Files()
    segment: int = 0
    """Bytes of a connection that arrive together, at most; 0: all that were sent together."""
    state: int = 0
    """Bytes of state that a session may make the collector hold; all sessions of a source two times as many, all
    sources three times. 0: as many as by default."""
    spool: int = 2**26
    """Bytes that the collector's spool may hold before its sources wait."""
    batch: int = 500_000
    """Rows of a full batch, which may be prepared while the one before lands."""
    stalls: float = 0.0
    """The share of blocking calls that take seconds."""
    collectors: int = 1
    """Collectors that share a table. A network leads to each; the keys of the second one's fates begin with `a/`."""


def encode(scenario: Scenario) -> bytes:
    """Return a scenario as JSON, a fact a line."""
    lines = [msgspec.json.encode(fact) for fact in scenario.facts]
    rest = msgspec.json.encode(
        {
            name: getattr(scenario, name)
            for name in (
                "seed",
                "queue",
                "places",
                "limits",
                "segment",
                "state",
                "spool",
                "batch",
                "stalls",
                "collectors",
                "files",
                "fates",
            )
        }
    )
    return rest[:-1] + b',"facts":[\n' + b",\n".join(lines) + b"\n]}\n"


def decode(data: bytes) -> Scenario:
    """Return the scenario of JSON text."""
    return msgspec.json.decode(data, type=Scenario)
