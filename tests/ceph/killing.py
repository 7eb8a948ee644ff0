"""Kill collectors of one table in an object store at random, each behind a lossy proxy of its own, while producers
send.

The expected events are read from the spools between the lives of the collectors, without the daemon, as `tests.faults`
does for local stores. Producers leave numbers out on purpose.
"""

from __future__ import annotations

import json
import random
import socket
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from typing import NamedTuple

from tests import toml
from tests.ceph.bucket import BucketCollector
from tests.ceph.table_log import TableLog, transactions, turns
from tests.faults.test_kill import SpoolReader
from tests.faults.test_many_killed import Life, Upkeeps
from tests.system.collector import until
from tests.system.producers import JetsProducer, TcpProducer, UdpProducer, free_ports
from tests.system.test_clients import Program
from tests.traffic.http_proxy import Chances, LossyProxy

COLUMNS = ["source", "session", "stream", "seq", "kind", "name", "id", "parent", "attributes"]

CHANCES = Chances(dropped=0.02, lost=0.02, cut=0.02, delayed=0.04, seconds=0.6, puts=4)

UPKEEPS_EVERY = 6
"""After this number of kills, two upkeeps are started at once, beside those of the collectors."""

ALL_AT_ONCE = 0.2
"""Probability that a kill hits all collectors."""

SKIP = 0.01
"""Probability that a number is left out."""

STREAMS = 10_000
"""Maximum number of streams of a collector's producers."""

PAUSE = 8.0
"""Maximum time (seconds) between two kills.

No collector may live so long that its spool no longer has what the reader has not read: the spool keeps what two
checkpoints need, and collectors that wait for each other live longer.
"""

STARTING = 0.2
"""Probability that a collector may be killed while it starts."""

MORE = """\
segment_size = "1 MiB"
checkpoint_interval = "2 min"
[store]
commit_interval = "400 ms"
compact_size = "4 MiB"
[heartbeat]
interval = "2 s"
"""


class Reader(SpoolReader):
    """Reads the content of a spool: events of Heph, and the lines of each session of JETS."""

    def __init__(self, directory):
        super().__init__(directory)
        self.lines = defaultdict(bytes)

    def _walk(self, session, data):
        info = self.infos[session]
        if info.source == "jets":
            self.lines[info.session] += data
            return b""
        # This client keeps a record of its own, and sends events again.
        if info.source == "client":
            return b""
        return super()._walk(session, data)


class JetsLines:
    """Counts in the lines of JETS sessions:

    `spans` that began and ended, `instants`, and `unresolved` references. Each is counted by session and id of the
    record.
    """

    def __init__(self, sessions):
        self.spans, self.instants, self.unresolved = Counter(), Counter(), Counter()
        for session, data in sessions.items():
            found = defaultdict(set)
            for line in _whole_lines(data):
                id_ = line.get("id", line.get("record_id"))
                if line["type"] == "event":
                    self.instants[session, id_] += 1
                found[line["type"]].add(id_)
            self.spans.update((session, id_) for id_ in found["record"] & found["record_end"])
            referred = found["event"] | found["record_end"]
            self.unresolved.update((session, id_) for id_ in referred - found["record"])


def _whole_lines(data):
    for line in data.splitlines():
        try:
            yield json.loads(line)
        except ValueError:  # A kill cut this line off.
            assert data.endswith(line)


class RemoteLife(Life):
    """A collector behind its proxy.

    If a start does not reach the store, the collector ends by itself and is started again, as by a service manager;
    `refused` counts these starts.
    """

    def __init__(self, directory, url, proxy, options, number, *, seed):
        tcp, jets, client = free_ports(socket.SOCK_STREAM, 3)
        (udp,) = free_ports(socket.SOCK_DGRAM, 1)
        sources = "".join(
            toml.source(name, kind, format_, listen=f"127.0.0.1:{port}")
            for name, kind, format_, port in (
                ("tcp", "tcp", "heph", tcp), ("udp", "udp", "heph", udp),
                ("jets", "tcp", "jets", jets), ("client", "tcp", "heph", client),
            )
        )  # fmt: skip
        collector = BucketCollector(
            directory, url, options | {"AWS_ENDPOINT_URL": proxy.url}, more=MORE, sources=sources
        )
        first = STREAMS * number
        usual = {"seed": seed, "skip": SKIP, "pause": 0.2}
        producers = [TcpProducer(("127.0.0.1", tcp), first + n, **usual) for n in range(3)]
        producers += [UdpProducer(("127.0.0.1", udp), first + 1000 + n, **usual) for n in range(2)]
        super().__init__(collector, Reader(collector.store), producers)
        self.number = number
        self.proxy = proxy
        self.streams = range(first, first + STREAMS)
        self.jets = [JetsProducer(("127.0.0.1", jets), n, **usual) for n in range(2)]
        self.client = Program(f"tcp://127.0.0.1:{client}", f"client-{number}", pause=0.2)
        self.said = None
        """The last statement of the client."""
        self.since = time.monotonic()
        self.refused = 0

    def begin(self):
        self.collector.start()
        self.since = time.monotonic()
        for producer in (*self.producers, *self.jets):
            producer.start()

    def kill(self, *, wait=False):
        super().kill(wait=wait)
        self.since = time.monotonic()

    def abandon(self):
        """End everything that this object has started."""
        self.collector.end()
        self.client.process.kill()
        self.client.process.communicate()

    def is_ready(self):
        self.revive()
        return (self.collector.own / "ports.json").exists()

    def revive(self):
        """Start the collector again if it ended by itself. It may do so only because it did not reach the store."""
        code = self.collector.process.poll()
        if code is None:
            return
        last = self.collector.log().rstrip().splitlines()[-1]
        assert "cannot" in last, f"ended with {code}: {last}"
        self.refused += 1
        self.spool.read()
        self.collector.start(wait=False)
        self.since = time.monotonic()

    def end(self):
        """Let all producers finish, kill the collector a last time, and check that its ledger balances."""
        self.revive()
        self.collector.wait_ready()
        for producer in self.jets:
            producer.end()
        self.client.tell()
        self.said = self.client.end()
        super().end()


class Written(NamedTuple):
    """A table after it was written for `seconds`: its rows and versions, and what happened meanwhile."""

    url: str
    lives: list[RemoteLife]
    rows: list[dict]
    versions: list[list[dict]]
    kills: int
    at_once: int
    upkeeps: Upkeeps
    """Upkeeps that were started beside those of the collectors."""
    seconds: float

    def said(self):
        deeds = sum((life.proxy.counts for life in self.lives), Counter())
        withheld = sum((life.proxy.withheld for life in self.lives), Counter())
        kinds = Counter(row["kind"] for row in self.rows)
        commits = sum(any(i.endswith("/spool") for i in transactions(v)) for v in self.versions)
        worked = turns(self.versions)
        both = sum(bool(turn.merges) and len(turn.writers) > 1 for turn in worked)
        return "\n".join([
            f"{self.seconds:.0f} s; {self.kills} kills, {self.at_once} times both at once;"
            f" {sum(life.refused for life in self.lives)} starts did not reach the store",
            f"requests {dict(deeds)}",
            f"answers withheld { ({' '.join(what): n for what, n in withheld.most_common()}) }",
            f"{len(self.versions)} versions, {commits} commits of rows; {len(worked)} turns of upkeeps, {both} of them"
            f" with merges while both wrote; upkeeps of ours {dict(self.upkeeps.ended)}",
            *(f"upkeep: {each}" for each in self.upkeeps.failures),
            f"rows {dict(kinds)}",
        ])  # fmt: skip


def write_and_kill(url, options, mktemp, seconds, *, seed):
    """Let two collectors write to the table at `url` for some time, while they are killed."""
    with ExitStack() as stack:
        lives = []
        for number in range(2):
            proxy = stack.enter_context(LossyProxy(options["AWS_ENDPOINT_URL"], seed=seed + number))
            life = RemoteLife(mktemp("collector"), url, proxy, options, number, seed=seed)
            stack.callback(life.abandon)
            lives.append(life)
        upkeeps = Upkeeps(url, [life.collector.environ for life in lives], may_fail=True)
        kills, at_once = kill_at_random(lives, upkeeps, seconds, seed=seed)
        log = TableLog(url, options)
        # The upkeeps of killed collectors continue.
        until(lambda: not log.holder(), "the last upkeep to end", 300, pause=1.0)
        return Written(
            url, lives, log.rows(COLUMNS), log.versions(), kills, at_once, upkeeps, seconds
        )


def kill_at_random(lives, upkeeps, seconds, *, seed):
    """Kill collectors for some time.

    Then the network is good, all producers finish, and the collectors stop in order. Return how many were killed, and
    how often all at once.
    """
    rng = random.Random(seed)
    kills = at_once = 0
    for life in lives:
        life.begin()
        life.proxy.misbehave(CHANCES)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pause_until(time.monotonic() + rng.uniform(0.5, PAUSE), lives)
        if rng.random() > STARTING:
            until(
                lambda: all(map(RemoteLife.is_ready, lives)) or overdue(lives),
                "collectors to be ready", 120,
            )  # fmt: skip
        victims = overdue(lives) or [rng.choice(lives)]
        if rng.random() < ALL_AT_ONCE:
            victims, at_once = lives, at_once + 1
        for life in victims:
            if kills % UPKEEPS_EVERY == 0:
                upkeeps.go_on()
            life.kill()
            kills += 1
    for life in lives:
        life.proxy.misbehave()
    upkeeps.end()
    for life in lives:
        life.end()
    for life in lives:
        # Heartbeats show the state of a collector: wait for one of its last life.
        until(lambda one=life.collector: one.status()["heartbeat"]["committed"], "a heartbeat")
        life.collector.settle()
        life.collector.stop()
        life.collector.check_final_ledgers()
    return kills, at_once


def overdue(lives):
    """Return the collectors that have lived too long: their spools may soon lack what the reader has not read."""
    now = time.monotonic()
    return [life for life in lives if now - life.since > 3 * PAUSE and life.is_ready()]


def pause_until(moment, lives):
    while time.monotonic() < moment:
        for life in lives:
            life.revive()
        time.sleep(0.2)
