"""The unit under a real systemd, which is process 1 of namespaces of its own: it has none of this
machine's processes, and its control group only where that is version 1, as in most containers."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.ingest.log import heph_event
from tests.system.collector import Collector, until
from tests.system.producers import free_ports

ROOT = Path(__file__).parents[2]
SYSTEMD = Path("/lib/systemd/systemd")
GROUPS = Path("/sys/fs/cgroup/systemd")

# Parts of the unit that a test cannot have: its paths, and a user who could not read the checkout.
DROP_IN = """
[Unit]
DefaultDependencies=no
[Service]
ExecStartPre=
ExecStartPre={python} -m tailrace check {config}
ExecStart=
ExecStart={python} -m tailrace serve --config {config} --store {store}
User=root
Environment=PYTHONPATH={path} TMPDIR={directory}
DynamicUser=no
PrivateTmp=no
ProtectHome=no
ReadWritePaths={directory}
StandardOutput=append:{directory}/serve.log
StandardError=append:{directory}/serve.log
RestartSec=100ms
WatchdogSec=3s
"""

BOOT = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system /run/lock
umount -R /sys/fs/cgroup
mount -t tmpfs tmpfs /sys/fs/cgroup
mkdir /sys/fs/cgroup/systemd
mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
cp -r "$1"/units/. /run/systemd/system
exec env -i container=test PATH="$PATH" "$2" --system --unit=test.target --log-target=console --show-status=no
"""


def why_not():
    if os.geteuid() != 0:
        return "namespaces need root: run pytest tests/deploy as root"
    if not SYSTEMD.exists() or shutil.which("nsenter") is None:
        return "no systemd: apt-get install systemd"
    if not GROUPS.is_dir():
        return "no control groups of version 1 with a hierarchy name=systemd: run it in such a container"
    return None


class Machine(Collector):
    """A systemd with the unit, and the collector that it runs; or with the template, for collectors whose configurations
    are NAME.toml beside this one's."""

    def __init__(self, directory, unit="tailrace.service", **options):
        super().__init__(directory, **options)
        self.unit = unit
        self.group = GROUPS / f"tailrace-test-{uuid.uuid4().hex}"
        units = directory / "units"
        (units / f"{unit}.d").mkdir(parents=True)
        (units / unit).write_text((ROOT / "deploy/systemd" / unit).read_text())
        (units / "test.target").write_text("[Unit]\nDefaultDependencies=no\n")
        config = directory / "%i.toml" if "@" in unit else self.config
        drop_in = DROP_IN.format(
            python=sys.executable, config=config, store=self.store, directory=directory,
            path=os.environ.get("PYTHONPATH") or ROOT / "collector",
        )  # fmt: skip
        (units / f"{unit}.d/drop-in.conf").write_text(drop_in)
        self.store.mkdir()

    def boot(self):
        self.group.mkdir()
        boot = [
            "sh",
            "-c",
            'echo $$ > "$0"; exec "$@"',
            str(self.group / "cgroup.procs"),
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--ipc",
        ]
        boot += ["--cgroup", "sh", "-c", BOOT, "boot", str(self.output.parent), str(SYSTEMD)]
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(boot, stdout=output, stderr=output)
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        until(lambda: children.read_text().strip(), "process 1")
        self.first = int(children.read_text().split()[0])
        until(lambda: self.systemctl("is-active", "test.target") == "active", "systemd")

    def systemctl(self, *arguments):
        done = self._inside("systemctl", *arguments)
        return done.stdout.strip() or done.stderr.strip()

    def show(self, name, instance=""):
        unit = self.unit.replace("@", f"@{instance}")
        return self.systemctl("show", "--value", "--property", name, unit)

    def signal(self, number):
        """To the service's main process. When this returns none of its threads runs: what one of them took
        from a socket after that would be lost with it."""
        pid = self.show("MainPID")
        self._inside("kill", f"-{number}", pid).check_returncode()
        until(lambda: self._states(pid) <= set("TXZ"), "all threads to stand still or be gone")

    def _states(self, pid):
        """The states of a process's threads, as letters; of one that is gone, none."""
        told = self._inside("sh", "-c", f"cat /proc/{pid}/task/*/stat").stdout.splitlines()
        return {line.rpartition(") ")[2][0] for line in told}

    def _inside(self, *command):
        enter = ["nsenter", "-t", str(self.first), "-m", "-p"]
        return subprocess.run(
            [*enter, *command], capture_output=True, text=True, check=False, timeout=60
        )

    def active(self):
        """Wait until it listens, and say where."""
        until(
            lambda: self.show("ActiveState") == "active", f"the service to be active; {self.log()}"
        )
        self.wait_ready()

    def end(self):
        if self.process is not None:
            self.kill()
        for path in sorted(self.group.glob("**/"), reverse=True):
            until(lambda path=path: not (path / "cgroup.procs").read_text(), "its processes to end")
            path.rmdir()


@pytest.fixture
def machine(tmp_path):
    if reason := why_not():
        pytest.skip(reason)
    port = free_ports(socket.SOCK_DGRAM, 1)[0]
    source = f'[sources.udp]\ntype = "udp"\nformat = "heph"\nlisten = "127.0.0.1:{port}"\n'
    machine = Machine(tmp_path, sources=source)
    try:
        machine.boot()
        yield machine
    finally:
        machine.end()


def test_nothing_is_lost_by_restarts_reloads_crashes_and_hangs(machine):
    assert machine.systemctl("start", "tailrace.service") == ""
    machine.active()
    assert machine.show("NFileDescriptorStore") == "1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(machine.address("udp"))
        sent = 0

        def send(count=50):
            nonlocal sent
            for _ in range(count):
                sock.send(heph_event(1, sent))
                sent += 1

        def arrived():
            source = machine.status()["sources"]["udp"]
            return (source["seen_events"], source["missing_events"]) == (sent, 0)

        send()
        until(arrived, "the first events")
        until(lambda: "rows/s into" in machine.show("StatusText"), "a line of status")
        machine.systemctl("--no-block", "restart", "tailrace.service")
        while machine.show("ActiveState") == "active" and sent < 5000:
            send(5)
        send()
        machine.active()
        until(arrived, "what was sent during the restart")
        assert machine.systemctl("reload", "tailrace.service") == ""
        send()
        until(arrived, "what was sent during the reload")
        for number, restarts in ((signal.SIGKILL, "1"), (signal.SIGSTOP, "2")):
            machine.signal(number)
            # One that stands still takes nothing in, and what it has taken in is on the disk.
            send()
            until(lambda restarts=restarts: machine.show("NRestarts") == restarts, "the restart")
            machine.active()
            until(arrived, f"what was sent after signal {number}")
        send()
        until(arrived, "the last events")
    assert machine.show("NFileDescriptorStore") == "1"
    assert machine.systemctl("stop", "tailrace.service") == ""
    assert machine.show("Result") == "success", machine.log()
    assert machine.show("NFileDescriptorStore") == "0"
    stored = [row["seq"] for row in machine.rows(["kind", "seq"]) if row["kind"] == "span"]
    assert sorted(stored) == list(range(sent))


def test_a_port_that_is_taken_is_had_once_it_is_free(machine):
    """More often than systemd's own limit, which is 5 starts in 10 s."""
    port = int(machine.config.read_text().rsplit('listen = "127.0.0.1:', 1)[1].split('"')[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", port))
        machine.systemctl("--no-block", "start", "tailrace.service")
        until(lambda: int(machine.show("NRestarts")) >= 6, f"six starts anew; {machine.log()}")
        assert f"cannot listen on 127.0.0.1:{port}: another process does" in machine.log()
    machine.active()


@pytest.fixture
def several(tmp_path):
    """A machine with the template, and the collectors a and b of one store, which it runs under it."""
    if reason := why_not():
        pytest.skip(reason)
    machine = Machine(tmp_path, unit="tailrace@.service")
    both = []
    for name in "ab":
        port = free_ports(socket.SOCK_DGRAM, 1)[0]
        source = f'[sources.udp]\ntype = "udp"\nformat = "heph"\nlisten = "127.0.0.1:{port}"\n'
        (tmp_path / name).mkdir()
        collector = Collector(tmp_path / name, sources=source, store=machine.store, name=name)
        text = collector.config.read_text().replace(f'name = "{name}"\n', "")
        (tmp_path / f"{name}.toml").write_text(text)
        both.append(collector)
    try:
        machine.boot()
        yield machine, *both
    finally:
        machine.end()


def test_instances_of_the_template_share_a_store_and_go_their_own_ways(several):
    machine, *both = several

    def send(collector, numbers):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for number in numbers:
                sock.sendto(
                    heph_event("ab".index(collector.name), number), collector.address("udp")
                )
        until(lambda: seen(collector) == numbers[-1] + 1, "the events")

    def seen(collector):
        return collector.status()["sources"]["udp"]["seen_events"]

    def active(collector):
        until(lambda: machine.show("ActiveState", collector.name) == "active", machine.log())
        collector.process = machine.process
        collector.wait_ready()

    for collector in both:
        assert machine.systemctl("start", f"tailrace@{collector.name}.service") == ""
    _, b = both
    for collector in both:
        active(collector)
        assert machine.show("NFileDescriptorStore", collector.name) == "1"
        assert collector.status()["collector"] == collector.name
        send(collector, range(20))
    there = machine._inside("ls", "/run").stdout.split()
    assert {"tailrace-a", "tailrace-b"} <= set(there)
    assert machine.systemctl("stop", "tailrace@a.service") == ""
    assert machine.show("Result", "a") == "success", machine.log()
    assert machine._inside("ls", "/run").stdout.split().count("tailrace-b") == 1
    send(b, range(20, 40))
    machine._inside("kill", "-9", machine.show("MainPID", "b")).check_returncode()
    until(lambda: machine.show("NRestarts", "b") == "1", "the restart")
    active(b)
    assert seen(b) == 40
    assert machine.systemctl("stop", "tailrace@b.service") == ""
    rows = [row for row in machine.rows(["kind", "stream", "seq"]) if row["kind"] == "span"]
    assert sorted((row["stream"], row["seq"]) for row in rows) == [
        *(("0", seq) for seq in range(20)), *(("1", seq) for seq in range(40)),
    ]  # fmt: skip


@pytest.mark.parametrize("unit", ["tailrace.service", "tailrace@.service", "user.service"])
def test_no_start_is_the_last_unless_the_configuration_is_wrong(unit):
    text = (ROOT / "deploy/systemd" / unit).read_text()
    assert "\nRestart=on-failure\nRestartPreventExitStatus=2\n" in text
    assert "\nStartLimitIntervalSec=0\n" in text
