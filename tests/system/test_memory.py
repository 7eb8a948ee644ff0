"""Whatever fills each kind of state to its bound, over each transport: the process stays within the sum of
the bounds that its configuration comes to, and so does the next one after a kill; an honest peer beside
loses nothing. All but one of the files that a source may follow have a compressed member that is not over.

The short form has small limits, which a round or two pass and the rest fill again; the slow form has the
defaults.
"""

from __future__ import annotations

import contextlib
import json
import socket
import zlib
from pathlib import Path

import pytest

from tests import toml
from tests.decoding import ovni_bytes
from tests.ingest.log import heph_event, heph_goodbye, heph_session
from tests.system.collector import Collector, until
from tests.system.test_attacks import Honest

MIB = 2**20

SMALL = (
    toml.section("store", commit_rows=20000, commit_bytes="4 MiB")
    + toml.section(
        "ledger",
        session_state_max="2 MiB",
        source_state_max="6 MiB",
        state_max="8 MiB",
        source_streams_max=2048,
        sessions_max=64,
    )
    + toml.section("spool", checkpoint_interval="1 s")
)
DEFAULTS = toml.section("spool", checkpoint_interval="1 s")

SOURCES = """
[sources.tcp]
type = "tcp"
format = "heph"
listen = "127.0.0.1:0"
connections_max = 64
pending_max = "2 MiB"

[sources.udp]
type = "udp"
format = "heph"
listen = "127.0.0.1:0"
peers_max = 256

[sources.jets]
type = "tcp"
format = "jets"
listen = "127.0.0.1:0"
connections_max = 64
pending_max = "2 MiB"

[sources.unix]
type = "unix"
format = "jets"
listen = "{directory}/jets.sock"
connections_max = 64
pending_max = "2 MiB"
"""
TAILED = ("heph", "jets", "ovni", "dftracer", "et3")
TAIL = """
[sources.{format}_files]
type = "tail"
format = "{format}"
paths = ["{directory}/{format}"]
files_max = 64
inflating_max = "1 MiB"
record_max = "1 MiB"
pending_max = "2 MiB"
"""


# Yield what is sent: pieces for a round, which go on from those before. `size` scales with the limits.


def long_names(round_, size):
    """Begins of spans that never end, whose names take four bytes a character once they are read: some
    as long as a line may be, and many of the length that state keeps."""
    if not round_:
        yield b'{"type":"header","version":"2.0","metadata":{}}\n'
    for number in range(64 * size):
        id_ = 1 + 2 * (64 * size * round_ + number)
        name = "\N{GRINNING FACE}" + "n" * (1000 if number % 16 else 500_000)
        line = {"type": "record", "id": id_, "clk": id_, "name": name, "record_type": "t"}
        yield json.dumps(line, ensure_ascii=False).encode() + b"\n"


def never_ended(round_, size):
    lines = []
    for number in range(600 * size):
        id_ = 1 + 2 * (600 * size * round_ + number)
        lines.append(
            b'{"type":"record","id":%d,"clk":%d,"name":"%s%d","record_type":"t"}\n'
            % (id_, id_, b"n" * 300, id_)
        )
    yield b"".join(lines)


def orphans(round_, size):
    numbers = range(1200 * size)
    line = b'{"type":"record_end","record_id":%d,"clk":1}\n'
    yield b"".join(line % (7 * (1200 * size * round_ + n)) for n in numbers)


def jumping_counters(round_, size):
    for part in range(4):
        at = 4 * round_ + part
        yield b"".join(heph_event(n % 60, 3 * (300 * size * at + n)) for n in range(300 * size))


def streams(round_, size):
    """Streams of which more events come than are remembered."""
    for n in range(40 * round_, 40 * (round_ + 1)):
        yield b"".join(heph_event(stream, n) for stream in range(200 * size))


def announced(round_, size):
    """Sessions that hold what they can, and say goodbye to streams that never came."""
    for number in range(4 * size):
        id_ = 10**6 + 4 * size * round_ + number
        events = b"".join(heph_event(n % 9, 3 * n) for n in range(200))
        yield heph_session(id_) + events + heph_goodbye({str(n): 50 for n in range(20)})


def deep_stacks(round_, size):
    for thread in range(2 * size):
        yield b"".join(b"M %d 1 %d\n" % (n, 100 * round_ + thread) for n in range(1000, 2500))


def hashes(round_, size):
    line = (
        b'{"id":%d,"name":"FH","cat":"dftracer","pid":1,"tid":1,"ts":1,"dur":0,"ph":"M",'
        b'"args":{"name":"%s%d","value":"%d"}}\n'
    )
    first = 1 + 500 * size * round_
    yield b"".join(line % (n, b"/a" * 450, n, n) for n in range(first, first + 500 * size))


def holes_of_a_file(round_, size):
    line = (
        b'{"id":%d,"name":"read","cat":"POSIX","pid":1,"tid":1,"ts":1,"dur":1,"ph":"X","args":{}}\n'
    )
    first = 1 + 4000 * size * round_
    yield b"".join(line % (3 * n) for n in range(first, first + 4000 * size))


def tasks(round_, size):
    """Types with long labels, tasks of them, and regions that never end."""
    parts = [] if round_ else [ovni_bytes.HEADER, ovni_bytes.starts(1)]
    for number in range(1000 * size):
        at = 1000 * size * round_ + number
        label = (b"l" * 200 + b"%d" % at) + b"\0"
        parts.append(ovni_bytes.jumbo("VYc", 2 + at, ovni_bytes.u32(at) + label))
        parts.append(ovni_bytes.event("VTc", 2 + at, ovni_bytes.u32(at, at)))
        parts.append(ovni_bytes.event("6W[", 2 + at))
    yield b"".join(parts)


class UnfinishedMember:
    """A file of DFTracer with one compressed member that never ends."""

    EVENTS = 330
    """Events that a call writes: more content than a member's window."""

    def __init__(self, directory, number):
        self._path = directory / f"trace-{number}-app.pfw.gz"
        self._number = number
        self._deflate = zlib.compressobj(1, zlib.DEFLATED, 31)
        self._events = 0

    def write(self):
        line = '{{"id":{0},"name":"read","cat":"POSIX","pid":{1},"tid":1,"ts":{2},"dur":1,"ph":"X","args":{{"x":{3}}}}}\n'
        text = "" if self._events else "[\n"
        for n in range(self._events, self._events + self.EVENTS):
            text += line.format(n, self._number, n, n * 7919 % 10007)
        self._events += self.EVENTS
        data = self._deflate.compress(text.encode()) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        with self._path.open("ab") as file:
            file.write(data)


ATTACKS = {
    "heph udp jumping counters": ("udp", jumping_counters),
    "heph udp streams": ("udp", streams),
    "heph tcp jumping counters": ("tcp", jumping_counters),
    "heph tcp streams": ("tcp", streams),
    "heph tcp announced sessions": ("tcp", announced),
    "jets tcp long names": ("jets", long_names),
    "jets tcp never ended": ("jets", never_ended),
    "jets tcp orphans": ("jets", orphans),
    "jets unix long names": ("unix", long_names),
    "jets unix orphans": ("unix", orphans),
    "heph file jumping counters": ("heph_files", jumping_counters),
    "jets file never ended": ("jets_files", never_ended),
    "ovni tasks": ("ovni_files", tasks),
    "dftracer hashes": ("dftracer_files", hashes),
    "dftracer holes": ("dftracer_files", holes_of_a_file),
    "et3 deep stacks": ("et3_files", deep_stacks),
}


def peak(collector):
    """The most resident memory that the process ever had (bytes)."""
    status = Path(f"/proc/{collector.process.pid}/status").read_text()
    lines = (line.split() for line in status.splitlines())
    return next(int(words[1]) * 1024 for words in lines if words[0] == "VmHWM:")


def configured(directory, limits):
    tails = "".join(TAIL.format(format=name, directory=directory) for name in TAILED)
    for name in TAILED:
        (directory / name).mkdir(parents=True)
    sources = SOURCES.format(directory=directory) + tails
    return Collector(directory, sources=sources, more=limits, executable=True)


@contextlib.contextmanager
def way_in(collector, directory, source):
    """Give what sends bytes to a source."""
    if source.endswith("_files"):
        format_ = source.removesuffix("_files")
        name = {"ovni": "loom.l/proc.1/thread.1/stream.obs", "dftracer": "a.pfw", "et3": "a.trace"}
        path = directory / format_ / name.get(format_, "a")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as file:
            yield file.write
        return
    if source == "unix":
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(str(directory / "jets.sock"))
    else:
        kind = socket.SOCK_DGRAM if source == "udp" else socket.SOCK_STREAM
        sock = socket.socket(socket.AF_INET, kind)
        sock.connect(collector.address(source))
    with sock:
        if source != "udp":
            yield sock.sendall
            return

        def send(data):
            for at in range(0, len(data), 46 * 30):
                sock.send(data[at : at + 46 * 30])

        yield send


def check_bounded(collector):
    memory = collector.status()["memory"]
    assert sum(memory["bounds"].values()) == memory["bound_bytes"]
    assert memory["state_bytes"] <= memory["bounds"]["state"]
    took = peak(collector)
    assert took <= memory["bound_bytes"], f"{took / MIB:.0f} MiB"
    checkpoints = (collector.store / "spool").glob("*.checkpoint")
    largest = max((path.stat().st_size for path in checkpoints), default=0)
    assert (
        largest
        <= memory["bounds"]["checkpoint"]
        + memory["bounds"]["sessions"]
        + memory["bounds"]["streams"]
    )


def check_attacks(tmp_path, names, limits, *, size, rounds, by_count=()):
    """Make attacks on one process, each over a source of its own. Those in `by_count` reach a limit on a count
    first, and nothing has to give way for bytes."""
    gives_way = {ATTACKS[name][0]: name not in by_count for name in names}
    assert len(gives_way) == len(names)
    collector = configured(tmp_path, limits).start()
    for number in range(63):  # and one file for an attack
        UnfinishedMember(tmp_path / "dftracer", number).write()

    def evicted(source):
        return any(collector.status()["sources"][source]["evicted"].values())

    try:
        with Honest(collector, "tcp") as honest, contextlib.ExitStack() as stack:
            for source, pieces in map(ATTACKS.get, names):
                send = stack.enter_context(way_in(collector, tmp_path, source))
                for round_ in range(rounds):
                    for piece in pieces(round_, size):
                        send(piece)
                        honest.send()
                    if source == "udp":  # what the kernel drops fills no state
                        collector.settle()
                if gives_way[source]:
                    until(
                        lambda source=source: evicted(source), f"state of {source} to be given up"
                    )
            collector.settle()
            conditions = collector.status()["conditions"]
            assert set(conditions) <= {"state", "ledger"}
            assert "ledger." in conditions.get("state", "ledger.")
            check_bounded(collector)
            collector.kill()
        collector.start()
        for source, given in gives_way.items():
            assert evicted(source) == given, source
        seen = honest.sent
        collector.settle()
        check_bounded(collector)
        rows = honest.ask("SELECT seq FROM events WHERE kind = 'span'")
        assert {seq for (seq,) in rows} == set(range(seen))
        for source, given in gives_way.items():
            said = collector.rows(["session"], source=source, kind="session", name="evicted")
            assert bool(said) == given, source
        collector.check_balance()
        collector.stop()
        assert collector.process.returncode == 0
    finally:
        collector.end()


TOGETHER = [
    ["heph udp jumping counters", "heph tcp streams", "jets tcp never ended", "dftracer hashes"],
    ["heph udp streams", "heph tcp announced sessions", "jets unix orphans", "ovni tasks", "et3 deep stacks"],
    ["jets tcp long names", "jets unix long names", "heph file jumping counters", "dftracer holes"],
]  # fmt: skip
"""The short form makes each kind of attack, and uses each transport."""


@pytest.mark.parametrize("names", TOGETHER, ids=["first", "second", "third"])
def test_state_that_is_filled_to_its_bound_keeps_the_process_within_the_sum(tmp_path, names):
    check_attacks(tmp_path, names, SMALL, size=4, rounds=4)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(ATTACKS))
def test_so_it_does_by_each_attack_alone(tmp_path, name):
    check_attacks(tmp_path, [name], SMALL, size=4, rounds=8)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(ATTACKS))
def test_the_same_with_the_defaults(tmp_path, name):
    # A DFTracer session remembers 4,096 names (`NAMES_MAX`), which take 6 MiB.
    check_attacks(tmp_path, [name], DEFAULTS, size=40, rounds=10, by_count={"dftracer hashes"})


MEMBERS = 1000
MEMBERS_SOURCE = """
[sources.files]
type = "tail"
format = "dftracer"
paths = ["{directory}/traces"]
files_max = {files}
inflating_max = "{inflating_max}"
record_max = "64 KiB"
pending_max = "1 MiB"
"""
MEMBERS_LIMITS = toml.section("store", commit_bytes="4 MiB") + toml.section(
    "ledger", session_state_max="1 MiB", source_state_max="4 MiB", state_max="4 MiB"
)


@pytest.mark.parametrize("inflating_max", ["1 MiB", "8 MiB", "100 MiB"])
def test_members_that_are_not_over_keep_the_process_within_its_bound(tmp_path, inflating_max):
    """The source keeps twenty members, some of them, or all. After a kill, the next process inflates all files again."""
    (tmp_path / "traces").mkdir()
    members = [UnfinishedMember(tmp_path / "traces", number) for number in range(MEMBERS)]
    source = MEMBERS_SOURCE.format(directory=tmp_path, files=MEMBERS, inflating_max=inflating_max)
    collector = Collector(tmp_path, sources=source, more=MEMBERS_LIMITS, executable=True)

    def figures():
        return collector.status()["sources"]["files"]

    try:
        for round_ in (1, 2):
            for member in members:
                member.write()
            collector.start()
            events = round_ * MEMBERS * UnfinishedMember.EVENTS
            until(lambda: figures()["seen_events"] == events, "all events", seconds=180)  # noqa: B023
            check_bounded(collector)
            assert figures()["missing_events"] == 0
            collector.kill()
    finally:
        collector.end()
