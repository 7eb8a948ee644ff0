"""Run a collector and programs that send it events, break both at random times, and measure the collector meanwhile."""

from __future__ import annotations

import gzip
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
import psutil
import trio
from deltalake import DeltaTable

from benchmarks.places import ROOT
from benchmarks.soak.producers import PLAY
from benchmarks.soak.verdict import Life, Share, compare
from tests import program, toml
from tests.faults import preload
from tests.system.collector import Collector, until
from tests.system.producers import free_ports
from tests.traffic.both_ways import BothWays
from tests.traffic.mangler import Chances
from tests.traffic.relay import open_relay

REAL = ROOT / ".venv/producers/bin/python"
KINDS = (
    "heph_tcp", "heph_udp", "heph_datagrams", "heph_c", "jets", "ovni", "dftracer", "dftracer_gz",
    "dftracer_real", "et3",
)  # fmt: skip
FILES = {"ovni", "dftracer", "dftracer_gz", "dftracer_real", "et3"}
RENAMED = FILES - {"ovni"}
PACKED = {"dftracer", "et3"}

KILLED, PAUSED, MOVED = 0.35, 0.25, 0.3
"""The probabilities of a life that SIGKILL ends, that SIGSTOP pauses, and whose file is renamed or packed."""
NETWORK = Chances(drop=0.02, duplicate=0.02, reorder=0.02)
LOSS, DELAY = 0.05, 0.2
"""Share of datagrams that are lost in each direction, and the longest delay (seconds), of a client that is acknowledged."""

RESTARTS = ((0.0, 0.25), (0.9, 1.0))
"""The parts of the time in which the collector is killed and restarted. In between, one process works all the time, so
that a leak shows.
"""
SHORT_SECONDS = 300.0
"""Length (seconds) below which a soak is too short for a leak, and restarts come at any time."""
CALM_SECONDS = 3.0
"""Time (seconds) without a fault of the collector after which it has found and read all finished files."""
METRICS_SECONDS = 30.0
"""Time (seconds) for which a sample waits for a collector that is busy or paused."""
SETTLED_SECONDS = 20.0
"""Time (seconds) after the end of a program in which its events reach the table, while sessions end."""
CHECKS_MAX, CHECK_SECONDS = 4, 20.0
"""How often the table is compared with the journals before the end, at most, and the least time (seconds) between two
comparisons.
"""

MORE = (
    toml.section("spool", segment_size="8 MiB", checkpoint_interval="10 s")
    + toml.section("ledger", resume_time="30 s")
    + toml.section("store", commit_interval="1 s")
)

Fault = Callable[[random.Random], None]


class Plan(NamedTuple):
    """The length (seconds) of a soak, the seed of its random choices, and the events a second of all programs."""

    seconds: float
    seed: int
    rate: float

    @property
    def sample_seconds(self) -> float:
        return min(max(self.seconds / 600, 1.0), 5.0)

    @property
    def life_seconds(self) -> float:
        """Mean time between the start of a program and its end."""
        return min(max(self.seconds / 12, 4.0), 30.0)

    @property
    def fault_seconds(self) -> float:
        """Mean time between two faults of the collector."""
        return min(max(self.seconds / 40, 1.5), 15.0)

    def restarts_at(self, at: float) -> bool:
        """Return whether the collector may be killed and restarted at a time (seconds from the start)."""
        part = at / self.seconds
        return self.seconds < SHORT_SECONDS or any(low <= part < high for low, high in RESTARTS)

    @property
    def kept_seconds(self) -> float:
        """Time for which a finished file stays."""
        return min(max(self.seconds / 10, 6.0), 60.0)

    @property
    def checks(self) -> list[float]:
        """Times (seconds from the start) of the comparisons before the end."""
        count = min(int(self.seconds / CHECK_SECONDS), CHECKS_MAX)
        return [self.seconds * (number + 1) / (count + 1) for number in range(count)]


class Sample(msgspec.Struct, array_like=True):
    """The collector at a moment (seconds from the start). `commit` is the mean time (ms) of a commit since the sample
    before; `cpu` is the share of a core since then; both are of the main process. `log`, `spool` and `resident` are bytes,
    and `files` are those of the table's newest version, `kept` all data files on disk.
    """

    at: float
    resident: int
    descriptors: int
    threads: int
    cpu: float
    spool: int
    log: int
    files: int
    kept: int
    commit: float | None


class Check(msgspec.Struct, kw_only=True):
    """A comparison of the table with the journals before the end. Events of open sessions may still come."""

    at: float
    emitted: int
    stored: int
    open: int
    faults: int


class Outcome(msgspec.Struct, kw_only=True):
    """The results of a soak. `faults` are the names of faults and their times (seconds from the start)."""

    shares: list[Share]
    checks: list[Check]
    faults: list[tuple[float, str]]
    samples: list[Sample]
    absent: list[str]
    """Kinds of programs that cannot run here."""


class Watched(Collector):
    """A collector whose output is a pipe, which the driver reads into `kept`, or leaves full for a while."""

    def __init__(self, directory: Path, **options: object) -> None:
        super().__init__(directory, executable=True, **options)
        self.output = directory / "pipe"
        self.kept = directory / "output.log"
        self.kept.touch()
        os.mkfifo(self.output)
        self._pipe = os.open(self.output, os.O_RDWR | os.O_NONBLOCK)
        self._is_read = threading.Event()
        self._is_read.set()
        threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self) -> None:
        with self.kept.open("ab") as kept:
            while self._is_read.wait():
                with suppress(BlockingIOError):
                    kept.write(os.read(self._pipe, 65_536).replace(b"\0", b""))
                    kept.flush()
                time.sleep(0.1)

    @contextmanager
    def unread(self) -> Iterator[None]:
        """Leave the pipe full within the `with` block."""
        self._is_read.clear()
        with suppress(BlockingIOError):
            while True:
                os.write(self._pipe, bytes(4096))
        try:
            yield
        finally:
            self._is_read.set()

    def log(self) -> str:
        return self.kept.read_text(errors="replace")


class Soak:
    """A collector, its programs, and the threads that drive them. `home` is a new directory."""

    def __init__(self, home: Path, plan: Plan) -> None:
        self.plan = plan
        self.home = home
        self.journals = home / "journals"
        self.runs = home / "runs"
        for directory in (self.journals, self.runs, home / "switches"):
            directory.mkdir()
        self.faults: list[tuple[float, str]] = []
        self.samples: list[Sample] = []
        self.lives: list[Life] = []
        self.files: dict[Path, Life] = {}
        """Directories of finished programs, which exist."""
        self.over = threading.Event()
        self.begun = 0.0
        self.environ: dict[str, str] = {}
        self.absent: list[str] = []
        always = [self.pause, self.remove_lock, self.leave_unread, self.upkeep]
        disk = {}
        if preload.why_not():
            self.absent += ["heph_c", "fill_disk"]
        else:
            self.disk = preload.FailingDisk(preload.build(home), home / "switches")
            disk = self.disk.environment("/store/")
            always.append(self.fill_disk)
            self.environ[PLAY] = str(_play(home))
        self.always: list[Fault] = always
        if not REAL.exists():
            self.absent.append("dftracer_real")
        self.kinds = [kind for kind in KINDS if kind not in self.absent]
        tcp, jets = free_ports(socket.SOCK_STREAM, 2)
        (udp,) = free_ports(socket.SOCK_DGRAM, 1)
        self.ports = {"tcp": tcp, "jets": jets, "udp": udp}
        self.collector = Watched(home, sources=self._sources(), more=MORE, environ=disk)
        self.relayed: tuple[str, int] = ("", 0)
        """Address of the relay that loses, doubles and reorders datagrams."""

    def _sources(self) -> str:
        text = ""
        for name, port in self.ports.items():
            type_, format_ = ("tcp", "jets") if name == "jets" else (name, "heph")
            more = {"idle_timeout": "5 min"} if name == "udp" else {}
            text += toml.source(name, type_, format_, listen=f"127.0.0.1:{port}", **more)
        for name, more in (("ovni", {}), ("dftracer", {}), ("et3", {"dialect": "agent"})):
            (self.runs / name).mkdir()
            text += toml.source(name, "tail", name, paths=[f"{self.runs / name}/"], rest_time="1 h", **more)  # fmt: skip
        return text

    def run(self) -> Outcome:
        """Run it to its end."""
        checks = []
        driving = [self._relay, self._sample, self._break, *(Lane(self, kind).run for kind in self.kinds)]  # fmt: skip
        try:
            self.collector.start()
            self.begun = time.monotonic()
            with ThreadPoolExecutor(len(driving)) as pool:
                running = [pool.submit(each) for each in driving]
                try:
                    for at in self.plan.checks:
                        self._wait(running, at)
                        checks.append(self._check())
                    self._wait(running, self.plan.seconds)
                finally:
                    self.over.set()
            for each in running:
                each.result()
            self._finish()
        finally:
            self.collector.end()
        shares = compare(self.collector.store, self.lives, self.journals)
        return Outcome(
            shares=shares, checks=checks, faults=self.faults, samples=self.samples, absent=self.absent
        )  # fmt: skip

    @property
    def now(self) -> float:
        return time.monotonic() - self.begun

    def _wait(self, running: list[Future[None]], end: float) -> None:
        """Wait until a time of the soak. Raise the error of a part that has failed."""
        while self.now < end:
            time.sleep(0.2)
            for each in running:
                if each.done():
                    each.result()
                    raise RuntimeError("a part of the soak ended early")

    def _check(self) -> Check:
        """Compare the lives so far with the table."""
        lives, settled = list(self.lives), self.now - SETTLED_SECONDS
        shares = compare(self.collector.store, lives, self.journals, settled)
        for share in shares:
            for line in share.named:
                print(line, flush=True)
        return Check(
            at=round(self.now, 1), emitted=sum(share.emitted for share in shares),
            stored=sum(share.stored for share in shares), open=sum(share.open for share in shares),
            faults=sum(share.faults for share in shares),
        )  # fmt: skip

    def _finish(self) -> None:
        """Let the collector take what is left, and end all sessions."""

        def is_read() -> bool:
            sources = self.collector.status()["sources"].values()
            return not sum(source.get("behind_bytes", 0) for source in sources)

        time.sleep(CALM_SECONDS)
        until(is_read, "the files to be read")
        self.collector.settle()
        self.collector.check_balance()
        self._stop()
        with self.collector.kept.open("ab") as log:
            program.run([*self.collector.command(), "--rest"], executable=True, check=True, stdout=log, stderr=log)  # fmt: skip

    def _stop(self) -> None:
        """Stop the collector in order."""
        self._check_running()
        self.collector.stop()
        if code := self.collector.process.returncode:
            raise RuntimeError(f"the collector ended with {code}: {self.collector.log()[-2000:]}")

    def _check_running(self) -> None:
        """Raise RuntimeError if the collector has ended by itself."""
        if (code := self.collector.process.poll()) is not None:
            raise RuntimeError(f"the collector ended by itself with {code}: {self.collector.log()[-2000:]}")  # fmt: skip

    def _relay(self) -> None:
        async def relay() -> None:
            target = ("127.0.0.1", self.ports["udp"])
            async with open_relay(target, self.plan.seed, NETWORK) as relay:
                self.relayed = relay.address
                await trio.to_thread.run_sync(self.over.wait)
                await trio.sleep(CALM_SECONDS)  # Programs say goodbye.

        trio.run(relay)

    def _sample(self) -> None:
        before: tuple[int, float, float, float, float] = (0, 0.0, 0.0, 0.0, 0.0)
        while not self.over.wait(self.plan.sample_seconds):
            with suppress(OSError, psutil.Error):
                process = psutil.Process(self.collector.process.pid)
                text = self.collector.get("/metrics", seconds=METRICS_SECONDS)[1]
                count, total = (_metric(text, f"tailrace_store_commit_seconds_{name}") for name in ("count", "sum"))  # fmt: skip
                cpu = sum(process.cpu_times()[:2])
                same = before[0] == process.pid
                commits = count - before[2] if same else count
                sample = Sample(
                    at=round(self.now, 1), resident=process.memory_info().rss,
                    descriptors=process.num_fds(), threads=process.num_threads(),
                    cpu=round((cpu - before[4]) / (self.now - before[1]), 3) if same else 0.0,
                    spool=int(_metric(text, "tailrace_spool_size_bytes")),
                    log=self.collector.kept.stat().st_size,
                    files=len(DeltaTable(str(self.collector.store / "events")).file_uris()),
                    kept=sum(1 for _ in self.collector.store.glob("events/day=*/*.parquet")),
                    commit=round(1000 * (total - before[3] * same) / commits, 2) if commits else None,
                )  # fmt: skip
                before = (process.pid, self.now, count, total, cpu)
                self.samples.append(sample)

    def _break(self) -> None:
        """Do something to the collector at random times, and remove files of programs that have ended long ago."""
        rng = random.Random(f"faults/{self.plan.seed}")
        restarts: list[Fault] = [self.kill, self.kill, self.restart]
        deck: list[Fault] = []
        while not self.over.wait(CALM_SECONDS):
            self._tidy()
            if self.over.wait(max(rng.uniform(0.5, 1.5) * self.plan.fault_seconds - CALM_SECONDS, 0.0)):  # fmt: skip
                return
            deck = deck or rng.sample(self.always + restarts, len(self.always + restarts))
            fault = deck.pop()
            if fault not in restarts or self.plan.restarts_at(self.now):
                self._check_running()
                self.faults.append((round(self.now, 1), fault.__name__))
                fault(rng)

    def _tidy(self) -> None:
        """Remove old files, if the collector has read everything: what is gone before that is lost unseen."""
        old = [path for path, life in list(self.files.items()) if life.over < self.now - self.plan.kept_seconds]  # fmt: skip
        if not old or any(source.get("behind_bytes") for source in self.collector.status()["sources"].values()):  # fmt: skip
            return
        for path in old:
            shutil.rmtree(path)
            del self.files[path]
        time.sleep(1.0)  # until the bytes are synced

    def kill(self, rng: random.Random) -> None:
        """Kill the collector, and start it."""
        self.collector.kill()
        time.sleep(rng.random())
        self.collector.start()

    def restart(self, rng: random.Random) -> None:
        """Stop the collector in order, and start it."""
        self._stop()
        time.sleep(rng.random())
        self.collector.start()

    def pause(self, rng: random.Random) -> None:
        """Pause the collector (SIGSTOP)."""
        self.collector.process.send_signal(signal.SIGSTOP)
        time.sleep(rng.uniform(0.5, 3.0))
        self.collector.process.send_signal(signal.SIGCONT)

    def fill_disk(self, rng: random.Random) -> None:
        """Let all writes into the store fail as on a full disk."""
        self.disk.no_room()
        time.sleep(rng.uniform(1.0, 4.0))
        self.disk.works()

    def remove_lock(self, _: random.Random) -> None:
        """Remove the file of the collector's lock."""
        (self.collector.own / "lock").unlink(missing_ok=True)

    def leave_unread(self, rng: random.Random) -> None:
        """Let nobody read the collector's output."""
        with self.collector.unread():
            time.sleep(rng.uniform(2.0, 6.0))

    def upkeep(self, _: random.Random) -> None:
        """Run an upkeep beside the collector, as a user would; the collector runs its own ones, too."""
        program.run(
            [*program.COMMAND, "upkeep", "--store", self.collector.store, "--if-free"],
            capture_output=True, text=True, check=True, executable=True,
        )  # fmt: skip


class Lane:
    """One kind of program: starts one after another, and breaks some."""

    def __init__(self, soak: Soak, kind: str) -> None:
        self._soak = soak
        self._kind = kind
        self._rng = random.Random(f"{kind}/{soak.plan.seed}")
        self._rate = soak.plan.rate / len(soak.kinds)

    def run(self) -> None:
        number = 0
        while not self._soak.over.wait(0.1):
            number += 1
            name = f"{self._kind}-{number:05}"
            if self._kind == "heph_datagrams" and not self._soak.relayed[1]:
                continue
            network: AbstractContextManager[BothWays | None] = nullcontext()
            if self._kind == "heph_udp":
                seed = self._rng.randrange(2**32)
                network = BothWays(("127.0.0.1", self._soak.ports["udp"]), seed, loss=LOSS, delay=DELAY)  # fmt: skip
            with network as relay:
                self._live(name, self._target(name, relay))

    def _target(self, name: str, relay: BothWays | None) -> str:
        """Return the address or the new directory to which a program writes."""
        if self._kind in FILES:
            directory = self._soak.runs / self._kind.partition("_")[0] / name
            directory.mkdir()
            return str(directory)
        if relay is not None or self._kind == "heph_datagrams":
            host, port = relay.address if relay is not None else self._soak.relayed
            return f"udp://{host}:{port}"
        return f"tcp://127.0.0.1:{self._soak.ports['jets' if self._kind == 'jets' else 'tcp']}"

    def _live(self, name: str, target: str) -> None:
        """Run a program from its start to its end."""
        journal = self._soak.journals / name
        journal.touch()
        python = REAL if self._kind == "dftracer_real" else sys.executable
        command = [python, "-m", "benchmarks.soak.producers", self._kind, name, target, journal, f"{self._rate}"]  # fmt: skip
        path = [ROOT, *([] if self._kind == "dftracer_real" else sys.path)]
        complaints = self._soak.home / f"{self._kind}.log"
        with complaints.open("ab") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, start_new_session=True, stdin=subprocess.PIPE, stdout=log, stderr=log,
                env=os.environ | self._soak.environ | {"PYTHONPATH": ":".join(map(str, path))},
            )  # fmt: skip
        killed = self._rng.random() < KILLED
        try:
            self._grow(process, target)
            if killed:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=180)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.returncode and not killed:
            raise RuntimeError(f"{name} ended with {process.returncode}: {complaints.read_text()[-2000:]}")  # fmt: skip
        if self._kind in PACKED and self._rng.random() < MOVED:
            # A file that is renamed and packed while nobody looks is another file.
            for path in list(Path(target).glob("trace*")):
                path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
                path.unlink()
        life = Life(name, self._kind, self._rate, killed, self._soak.now)
        self._soak.lives.append(life)
        if self._kind in FILES:
            self._soak.files[Path(target)] = life

    def _grow(self, process: subprocess.Popen[bytes], target: str) -> None:
        """Wait until the time of a program is over. Pause it, and rename its file."""
        seconds = self._rng.uniform(0.5, 1.5) * self._soak.plan.life_seconds
        paused, moved = (self._rng.random() < chance for chance in (PAUSED, MOVED))
        self._soak.over.wait(seconds / 2)
        if paused:
            os.killpg(process.pid, signal.SIGSTOP)
            self._soak.over.wait(self._rng.uniform(0.2, 2.0))
            os.killpg(process.pid, signal.SIGCONT)
        if moved and self._kind in RENAMED:
            for path in _traces(Path(target)):
                path.rename(path.with_name(f"moved-{path.name}"))
        self._soak.over.wait(seconds / 2)


def _traces(directory: Path) -> list[Path]:
    """Return the trace files of a program, if it has begun to write."""
    return [path for path in directory.iterdir() if path.name.endswith(("trace", ".pfw", ".gz"))]


def _metric(text: str, name: str) -> float:
    found = re.search(rf"^{name} (\S+)", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def _play(home: Path) -> Path:
    """Build the program of the C client's tests."""
    made = home / "play"
    subprocess.run(
        ["cc", "-O1", "-pthread", f"-I{ROOT / 'clients/c'}", ROOT / "tests/c/play.c", "-o", made], check=True
    )  # fmt: skip
    return made
