"""Run a real daemon for tests.

It is started as a user would, on ports that the system chooses, and ended by its pid.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

from tailrace.figures import AWAITED_MAX
from tests import program, toml
from tests.metrics.scrape import OPENMETRICS, Scrape

SOURCES = toml.source("udp", "udp") + toml.source("tcp", "tcp") + toml.source("jets", "tcp", "jets")


SETTLED = 600
"""If a daemon still has something to commit after this time (seconds), it is stuck, or gets more data all the time."""
FINAL_BYTES = re.compile(
    r": (\d+) bytes? in \d+ sessions?: (\d+) decoded, (\d+) malformed, (\d+) pending"
)
FINAL_EVENTS = re.compile(
    r"events: (\d+) expected, (\d+) seen, (\d+) of them (?:a duplicate|duplicates), (\d+) missing"
)


class Collector:
    """A store and the daemon on it. The daemon may be started, killed and started again."""

    def __init__(
        self,
        directory: Path,
        *,
        sources=SOURCES,
        more="",
        environ=None,
        before=None,
        executable=False,
        store=None,
        name="main",
    ):
        self.store = store or directory / "store"
        self.name = name
        self.config = directory / "tailrace.toml"
        self.output = directory / "serve.log"
        head = toml.section("collector", name=name) + toml.section("admin", listen="127.0.0.1:0")
        self.config.write_text(f"{head}{more}\n{sources}")
        self.environ = environ or {}
        self.handed = None
        """Descriptors that a service manager passes to its process; see `tests.program`."""
        self.before = before
        """Code that its process runs before it becomes the daemon."""
        self.executable = executable
        """Whether its process runs a real executable file; see `tests.program`."""
        self.process = None
        self.ports = {}

    @property
    def own(self):
        """The collector's own directory, in a store that it may share."""
        return self.store if self.name == "main" else self.store / "collectors" / self.name

    def start(self, *, wait=True):
        (self.own / "ports.json").unlink(missing_ok=True)
        with self.output.open("ab") as output:
            self.process = program.start(
                self.command(), stdout=output, stderr=output, env=os.environ | self.environ,
                preexec_fn=self.before, executable=self.executable, handed=self.handed,
            )  # fmt: skip
        if wait:
            self.wait_ready()
        return self

    def command(self):
        return [*program.COMMAND, "serve", "--config", self.config, "--store", self.store]

    def wait_ready(self):
        def look():
            if self.process.poll() is not None:
                raise AssertionError(
                    f"the daemon ended with {self.process.returncode}:\n{self.log()}"
                )
            return (self.own / "ports.json").exists()

        until(look, f"the daemon to listen; its log:\n{self.log()}")
        self.ports = json.loads((self.own / "ports.json").read_text())

    def address(self, source):
        host, _, port = self.ports["sources"][source].rpartition(":")
        return host, int(port)

    def get(self, path, seconds=180):
        """Return the status code and the body of an admin page. Fail after some seconds."""
        try:
            with urllib.request.urlopen(
                f"http://{self.ports['admin']}{path}", timeout=seconds
            ) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metrics(self, accept=OPENMETRICS):
        """Return the text of /metrics."""
        request = urllib.request.Request(
            f"http://{self.ports['admin']}/metrics", headers={"Accept": accept}
        )
        with urllib.request.urlopen(request, timeout=180) as answer:  # noqa: S310 - http
            return answer.read().decode()

    def status(self):
        return json.loads(self.get("/status")[1])

    @property
    def running(self):
        return self.process is not None and self.process.poll() is None

    def check_balance(self):
        """Check the figures of a daemon that answers.

        All received bytes were decoded, and all counted events are stored or missing, exactly. The reasons of the gaps
        add up to what is missing. The metrics are those of the contract and keep its laws.
        """
        if not self.running or not self.ports:
            return
        try:
            sources = self.status()["sources"]
            scrape = Scrape(self.metrics())
        except OSError:
            return
        for name, source in sources.items():
            assert source["imbalance_bytes"] == 0, name
            assert source["imbalance_events"] == 0, name
            assert source["unassigned_drops"] >= 0, name
            said = sum(source["gap_events"].values()) - sum(source["heal_events"].values())
            awaited = sum(each["events"] for each in source["awaited"])
            assert source["awaited_events"] >= awaited, name
            if not source["open_windows"]:
                assert (source["missing_events"], awaited) == (said, 0), name
            elif source["format"] == "heph" and len(source["awaited"]) < AWAITED_MAX:
                # Other formats also wait for records to which others refer; these do not count as missing yet.
                assert source["missing_events"] == said + awaited, name
        scrape.check_laws()
        scrape.check_families(sources)

    def check_final_ledgers(self):
        """Check in the same way each final ledger that the daemon printed when it stopped in order."""
        log = self.log()
        sums, events = FINAL_BYTES.findall(log), FINAL_EVENTS.findall(log)
        assert len(sums) == len(events) >= log.count("final ledger")
        for received, decoded, malformed, pending in sums:
            assert int(received) == int(decoded) + int(malformed) + int(pending)
        for expected, seen, duplicates, missing in events:
            assert int(expected) == int(seen) - int(duplicates) + int(missing)

    def settle(self):
        """Wait until everything that was received is decoded and committed.

        The interval of heartbeats must be longer than that of commits.
        """

        def spool():
            return self.status()["spool"]

        reached, begun = -1, time.monotonic()
        while not (now := spool())["end"] == now["durable"] == now["committed"]:
            assert now["committed"] >= reached
            assert time.monotonic() - begun < SETTLED, f"more comes, or commits are late: {now}"
            reached = now["committed"]
            until(lambda least=reached: spool()["committed"] > least, "the next commit", pause=0.1)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Stop the daemon in order. Return what it printed."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(timeout=180)
        return self.log()

    def hurry(self):
        """Give the daemon's upkeep as large a share of a busy machine as tests have, if this user may do so.

        The upkeep has a low priority; beside tests, a merge of four seconds once took four minutes.
        """
        for task in Path("/proc").glob(f"{self.process.pid}/task/*/children"):
            with suppress(OSError):
                for child in task.read_text().split():
                    for thread in Path(f"/proc/{child}/task").iterdir():
                        os.setpriority(os.PRIO_PROCESS, int(thread.name), 0)

    def end(self):
        """End the daemon, whatever state it is in."""
        if self.process and self.process.poll() is None:
            self.kill()

    def log(self):
        """Return the lines of the log that were written so far.

        A running daemon writes a line in a thread, after the event that it describes: see `logged`.
        """
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def logged(self, words, times=1):
        """Wait until the log of a running daemon contains the words at least this number of times.

        Return how often it contains them.
        """
        until(lambda: self.log().count(words) >= times, f"{words!r} in the log")
        return self.log().count(words)

    def rows(self, columns=None, **values):
        """Return the rows of the table that have the given values, as a list of dicts."""
        from tests.query.tables import rows_in

        return rows_in(self.store, columns, **values)

    def cli(self, *arguments, **options):
        """Run a command of the CLI on this store."""
        return program.run(
            [*program.COMMAND, *arguments[:1], "--store", self.store, *arguments[1:]],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
            **options,
        )


def until(condition, what, seconds=180.0, pause=0.05):
    """Wait until a condition is true.

    After some time, fail with a message that names the condition. Each check costs CPU time, mostly of a daemon that is
    asked: so a pause is a quarter of the time waited so far, and at most `pause`.
    """
    begun = time.monotonic()
    while not condition():
        waited = time.monotonic() - begun
        if waited > seconds:
            raise AssertionError(f"waited {seconds} s for {what}")
        time.sleep(min(max(waited / 4, 0.005), pause))
