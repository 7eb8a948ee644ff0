"""Define a scenario: what happens and when, as data.

A seed makes a scenario (`generate`), `play` plays it, and `shrink` leaves out what a failure does not need. Times are
nanoseconds since the world began. On disk, a scenario is JSON.
"""

from __future__ import annotations

import msgspec


class _Fact(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    at: int


class Begin(_Fact):
    """A program begins. If another one still runs at its address, it is killed."""

    program: int
    transport: str
    """For a program with a client:

    `udp` or `tcp`. For one without a client: `raw` (Heph in datagrams), `heph-tcp`, `jets-udp`, `jets-tcp`.
    """
    address: str
    buffer: int
    """Size (bytes) of the client's buffer."""
    acknowledge: bool = True
    """Whether the client asks the collector which events have arrived."""
    introduced: bool = False
    """Whether the program's first datagram arrives exactly once, without delay, and before all its other datagrams."""
    first: int = 0
    """For a program without a client: number of the first event of each stream."""
    overtaken: bool = False
    """Whether other events of a stream may arrive before its first one, if that does not have the number 0."""
    clock: int = 0
    """How far the wall clock of the program's host is ahead (ns)."""
    pace: int = 0
    """How much faster the clocks of the program's host run (parts per million)."""
    alone: bool = False
    """For a program without a client: whether its first packet is sent in a datagram of its own, and only once."""
    on: int | None = None
    """The program whose connection this program takes over."""


class Emit(_Fact):
    """A program emits events of a stream within some time (ns)."""

    program: int
    stream: int
    count: int
    over: int = 0
    beside: bool = False
    """Whether another thread of the program emits them, whatever the program is doing meanwhile."""


class Flush(_Fact):
    program: int
    seconds: float


class Close(_Fact):
    """A program ends in order."""

    program: int
    seconds: float


class Kill(_Fact):
    """A program ends at once, without a goodbye, whatever it is doing."""

    program: int


class _OfCollector(_Fact, frozen=True, tag=True, kw_only=True):
    collector: int = 0
    """The collector to which this happens."""


class KillCollector(_OfCollector, frozen=True, tag=True, kw_only=True):
    power: bool = False
    """Whether the machine's power is cut. Then the disk loses all or parts of what was not synced."""
    changes: int | None = None
    """The process ends after this number of changes to its disk, in the middle of the last one.

    Its service manager starts it again.
    """


class StartCollector(_OfCollector, frozen=True, tag=True, kw_only=True):
    pass


class Suspend(_OfCollector, frozen=True, tag=True, kw_only=True):
    """The collector's process is suspended for some time (ns). The kernel continues to receive."""

    duration: int


class FullDisk(_OfCollector, frozen=True, tag=True, kw_only=True):
    """The collector's disk is full for some time (ns)."""

    duration: int


class DiskFails(_OfCollector, frozen=True, tag=True, kw_only=True):
    """The next call of this kind (`write` or `sync`) that the collector makes to its disk fails with EIO."""

    call: str


class Rot(_Fact):
    """Bytes rot on the collector's disk, in a file to which no process writes any more, if there is one."""

    file: str
    """`segment` is a closed segment of the spool; `checkpoint` is the newest checkpoint."""
    share: float
    """Selects the segment and the place in the file, as a share of all."""


class LoseName(_Fact):
    """Another program takes away a name by which the running collector finds its files."""

    what: str
    """`lock` is the spool's lock; `store-lock` the store's.

    `spare` is the segment that comes next, `segment` the newest, `closed` the oldest if there are several. `spool` and
    `store` are directories with their content.
    """
    how: str
    """`removed`, `renamed`, or `replaced` by a copy of the file or by an empty directory."""
    undone: bool = False
    """Whether the name leads to the original again before the next start."""
    beside: bool = False
    """Whether a second collector is started immediately afterwards."""
    call: int = 0
    """This happens directly before the collector's call to its disk with this number from now on; with 0, between two
    of its steps.
    """

    @property
    def is_fatal(self) -> bool:
        """Return whether the running collector cannot continue after this."""
        return self.what in {"segment", "closed", "spool", "store"}

    @property
    def is_for_good(self) -> bool:
        """Return whether the next start cannot find data that was acknowledged and is not in the table."""
        return self.is_fatal and not self.undone


class TableDown(_Fact):
    """Commits fail for some time (ns). With `landed`, their rows are in the table nevertheless."""

    duration: int
    landed: bool


class Partition(_OfCollector, frozen=True, tag=True, kw_only=True):
    """The network of the collector carries nothing for some time (ns)."""

    duration: int


class Reset(_Fact):
    """The network resets the connection of a program."""

    program: int


OfCollector = KillCollector | StartCollector | Suspend | FullDisk | DiskFails | Partition


class Move(_Fact, frozen=True, tag=True, kw_only=True):
    """A load balancer moves a program's client to another collector."""

    program: int
    to: int | None
    """The new collector. None: each datagram goes to any of them, and each connection to any that accepts it."""
    cut: int | None = None
    """The client's connection breaks now; its collector notices this after this time (ns).

    None: the connection stays.
    """


class _OfTrace(_Fact, frozen=True, tag=True, kw_only=True):
    trace: int
    call: int = 0
    """This happens directly before the collector's system call with this number from now on; with 0, between two of its
    steps.
    """


class BeginTrace(_OfTrace, frozen=True, tag=True, kw_only=True):
    """A program begins to write a file."""

    format: str
    path: str
    """Path below the directory of the format's source. If there is an older file, it is emptied or removed."""
    anew: bool = True
    """Whether the program creates a new file instead of emptying the older one."""
    packed: bool = False
    """Whether the program writes gzip members."""


class WriteTrace(_OfTrace, frozen=True, tag=True, kw_only=True):
    """A program writes records to its file."""

    count: int
    held: int = 0
    """Number of bytes at the end that wait for the next write, so that a record or a member is incomplete."""
    garbage: int = 0
    """Number of unreadable pieces among the records."""
    skipped: int = 0
    """Number of record numbers that are left out among the records."""


class EndTrace(_OfTrace, frozen=True, tag=True, kw_only=True):
    """A program has written everything, and ends."""


class KillWriter(_OfTrace, frozen=True, tag=True, kw_only=True):
    """A program ends at once. Bytes that it held back are never written."""


class MoveTrace(_OfTrace, frozen=True, tag=True, kw_only=True):
    path: str


class PackTrace(_OfTrace, frozen=True, tag=True, kw_only=True):
    """gzip makes a compressed copy of a file within some time (ns), and then deletes the file."""

    over: int
    cut: int = 0
    """Size (bytes) of the content in the first gzip member; 0 if there is only one member."""


class DeleteTrace(_OfTrace, frozen=True, tag=True, kw_only=True):
    pass


OfTrace = BeginTrace | WriteTrace | EndTrace | KillWriter | MoveTrace | PackTrace | DeleteTrace


class Flood(_Fact):
    """A peer connects, and sends one epoch packet after the other."""

    number: int
    epochs: int


class Garble(_Fact):
    """A program without a client sends bytes that cannot be read (see `producers.GARBLES`)."""

    program: int
    how: str


class Discard(_Fact):
    """A program without a client discards events of a stream, and `unnumbered` further events without numbers.

    It reports both.
    """

    program: int
    stream: int
    count: int
    unnumbered: int = 0


class Vanish(_Fact):
    """The host of a program disappears: its connection neither ends nor breaks."""

    program: int


class Tear(_Fact):
    """A program finds its connection broken. The collector notices this later, after this time (ns)."""

    program: int
    later: int


class Deaf(_Fact):
    """A program reads nothing for some time (ns)."""

    program: int
    duration: int


class SetClock(_Fact):
    """The wall clock of the collector's host is set forward by some time (ns)."""

    by: int


class Drift(_Fact):
    """From now on, the wall clock of the collector's host runs faster (parts per million)."""

    pace: int


class Reload(_Fact):
    """The collector reloads its configuration: other limits for new sessions, and one source less for some time (ns).

    A source of files may have another name afterwards.
    """

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
    """Settings for how the collector follows files, and for its file system."""

    tick: int = 4_000_000
    """The times of files are multiples of this number of nanoseconds."""
    reuses: bool = False
    """Whether a new file may get the inode number of a deleted one."""
    descriptors: int = 4096
    places: int = 8192
    """Maximum number of files that are followed at the same time."""
    sources: int = 1
    """Number of sources that follow the files of each format."""


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    facts: list[Fact]
    fates: dict[str, list[int]]
    """Fates of datagrams, by keys such as `up/17` (the 17th datagram to the collector) or `down/17` (from it).

    A fate is a list of delays (ns), one for each copy that arrives; an empty list means that the network loses the
    datagram. All other datagrams arrive once, after the usual delay.
    """
    queue: int = 100_000
    """Number of datagrams for which the collector's kernel has room."""
    places: int = 16_384
    """Maximum number of streams of a source that the collector follows at the same time."""
    limits: dict[str, float] = {}
    """Other limits of the collector's ledger that differ from the defaults, by name (see `limits`)."""
    files: Files = Files()
    segment: int = 0
    """Maximum number of bytes of a connection that arrive together.

    With 0, everything that was sent together arrives together.
    """
    state: int = 0
    """Maximum state (bytes) of a session in the collector.

    A source may have twice, and all sources three times as much. 0 stands for the defaults.
    """
    spool: int = 2**26
    """Maximum size (bytes) of the collector's spool, at which its sources wait."""
    batch: int = 500_000
    """Number of rows of a full batch. It may be prepared while the batch before is being committed."""
    stalls: float = 0.0
    """Share of the blocking calls that take seconds."""
    collectors: int = 1
    """Number of collectors that share a table.

    Each has its own network; the keys of fates in the second one's network begin with `a/`.
    """


def encode(scenario: Scenario) -> bytes:
    """Return a scenario as JSON, with one fact on each line."""
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
    """Return the scenario that a JSON text describes."""
    return msgspec.json.decode(data, type=Scenario)
