"""Run a real Ceph cluster with its S3 gateway, from Debian's packages, in a directory and on ports of its own.

    python -m tests.ceph.cluster    # runs until it is interrupted; prints how to reach it

One monitor, one manager, OSDs on files, and one gateway run on 127.0.0.1 without systemd. Each object has a copy on
each OSD, so a put is done when all of them have it.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import obstore
from obstore.store import S3Store

from tests.system.producers import free_ports

PROGRAMS = (
    "ceph",
    "ceph-mon",
    "ceph-mgr",
    "ceph-osd",
    "ceph-authtool",
    "monmaptool",
    "radosgw",
    "radosgw-admin",
)

INSTALL = "apt-get install --no-install-recommends ceph-mon ceph-mgr ceph-osd ceph-common radosgw"

STOP_SECONDS = 20

CONFIGURATION = """\
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{mon}/0]
public network = 127.0.0.0/8
cluster network = 127.0.0.0/8
keyring = {directory}/keyring
run dir = {directory}
admin socket = {directory}/$name.asok
pid file = {directory}/$name.pid
log file = {directory}/$name.log
crash dir = {directory}
osd pool default size = {copies}
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pgp num = 4
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd crush update on start = true
mon max pg per osd = 1000
mon allow pool size one = true
mon warn on pool no redundancy = false
auth allow insecure global id reclaim = false
mon data avail warn = 1
mon data avail crit = 1
[mon.a]
mon data = {directory}/mon
[mgr.x]
mgr data = {directory}/mgr
mgr initial modules =
[osd]
osd data = {directory}/osd-$id
osd objectstore = bluestore
bluestore block size = 4294967296
bluestore block create = true
osd memory target = 939524096
[client.rgw]
rgw frontends = beast endpoint=127.0.0.1:{gateway}
rgw data = {directory}/rgw
rgw enable usage log = false
rgw enable gc threads = true
"""


def missing():
    """Return the programs that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


class RunningCeph:
    """The cluster, from its first file to a user of the gateway. At the end, everything is removed."""

    def __init__(self, *, osds=3):
        self._osds = osds
        self._stack = ExitStack()
        self.seconds = 0.0
        """How long (seconds) the set-up took."""
        self.processes = {}

    def __enter__(self):
        begun = time.monotonic()
        with self._stack as stack:
            self._set_up(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ceph-"))))
            self._stack = stack.pop_all()
        self.seconds = time.monotonic() - begun
        return self

    def __exit__(self, *exc_info):
        self._stack.close()

    @property
    def options(self):
        """Return the storage options for a client."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "tailrace-key",
            "AWS_SECRET_ACCESS_KEY": "tailrace-secret",
            "AWS_REGION": "default",
        }

    def user(self, name, *arguments):
        """Create a user of the gateway with the keys NAME-key and NAME-secret."""
        keys = [
            f"--uid={name}",
            f"--display-name={name}",
            f"--access-key={name}-key",
            f"--secret={name}-secret",
        ]
        self._run("radosgw-admin", "-n", "client.rgw", "user", "create", *keys, *arguments)

    def bucket(self, name):
        """Create a bucket that belongs to the first user."""
        store = S3Store(name, config=self.options, client_options={"allow_http": True})
        signed = obstore.sign(store, "PUT", "", timedelta(minutes=1))
        with urlopen(Request(signed, method="PUT")):  # noqa: S310 - our own http address
            return f"s3://{name}"

    def health(self):
        return self._run("ceph", "--connect-timeout", "30", "health").strip()

    def kill(self, name):
        """Kill a daemon, as a crash would."""
        self.processes[name].kill()
        self.processes[name].wait()

    def begin(self, name):
        """Start a daemon again."""
        self._start(name)

    def _set_up(self, directory):
        self.directory = directory
        mon, gateway = free_ports(socket.SOCK_STREAM, 2)
        fsid = str(uuid.uuid4())
        self.url = f"http://127.0.0.1:{gateway}"
        self._configuration = directory / "ceph.conf"
        self._configuration.write_text(
            CONFIGURATION.format(
                fsid=fsid, mon=mon, gateway=gateway, directory=directory, copies=self._osds
            )
        )
        for name in ("mon", "mgr", "rgw", *(f"osd-{number}" for number in range(self._osds))):
            (directory / name).mkdir()
        self._keys()
        self._monitor(fsid, mon)
        self._start("mgr.x")
        for number in range(self._osds):
            self._osd(number)
        self._start("client.rgw")
        self._await_gateway()
        self.user("tailrace")

    def _keys(self):
        """Create the keys of all daemons and of their administrator, in one file that all read."""
        everything = {"mon": "allow *", "osd": "allow *", "mgr": "allow *"}
        names = {
            "mon.": everything,
            "client.admin": everything,
            "client.rgw": everything,
            "mgr.x": {"mon": "allow profile mgr", "osd": "allow *"},
            **{
                f"osd.{number}": {
                    "mon": "allow profile osd",
                    "mgr": "allow profile osd",
                    "osd": "allow *",
                }
                for number in range(self._osds)
            },
        }
        create = ["--create-keyring"]
        for name, rights in names.items():
            caps = [word for daemon, right in rights.items() for word in ("--cap", daemon, right)]
            self._run(
                "ceph-authtool",
                self.directory / "keyring",
                *create,
                "--gen-key",
                "-n",
                name,
                *caps,
                configured=False,
            )
            create = []

    def _monitor(self, fsid, port):
        monmap = self.directory / "monmap"
        place = f"[v2:127.0.0.1:{port}/0]"
        self._run(
            "monmaptool", "--create", "--fsid", fsid, "--addv", "a", place, monmap, configured=False
        )
        self._run(
            "ceph-mon",
            "--mkfs",
            "-i",
            "a",
            "--monmap",
            monmap,
            "--keyring",
            self.directory / "keyring",
        )
        self._start("mon.a")

    def _osd(self, number):
        id_ = str(uuid.uuid4())
        self._run("ceph", "--connect-timeout", "60", "osd", "new", id_)
        self._run("ceph-osd", "-i", str(number), "--mkfs", "--osd-uuid", id_)
        self._start(f"osd.{number}")

    def _await_gateway(self):
        end = time.monotonic() + 180
        while time.monotonic() < end:
            if self.processes["client.rgw"].poll() is not None:
                break
            try:
                with urlopen(self.url):  # noqa: S310 - our own http address
                    return
            except HTTPError:
                return  # Any answer shows that the gateway runs
            except URLError:
                time.sleep(0.1)
        log = (self.directory / "client.rgw.log").read_text(errors="replace")
        raise RuntimeError(f"the gateway does not answer:\n{log[-4000:]}")

    def _start(self, name):
        kind, _, id_ = name.partition(".")
        program = ["radosgw", "-n", name] if kind == "client" else [f"ceph-{kind}", "-i", id_]
        with (self.directory / f"{name}.out").open("ab") as output:
            process = subprocess.Popen(
                [*program, "-f", "-c", self._configuration],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
            )
        self.processes[name] = process
        self._stack.callback(_end, process)

    def _run(self, program, *arguments, configured=True):
        configuration = ["-c", str(self._configuration)] if configured else []
        done = subprocess.run(
            [program, *configuration, *map(str, arguments)],
            capture_output=True, text=True, check=False, timeout=180,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(
                f"{program} {' '.join(map(str, arguments))}:\n{done.stdout}\n{done.stderr}"
            )
        return done.stdout


def _end(process):
    """End a process that this test started.

    The files of the OSDs are removed with the directory, so no daemon needs long.
    """
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main():
    if missing():
        sys.exit(f"{', '.join(missing())}: not installed: {INSTALL}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with RunningCeph() as ceph:
            head = f"# {ceph.bucket('traces')}, set up in {ceph.seconds:.0f} s by process {os.getpid()}"
            options = [f"export {name}={value}" for name, value in ceph.options.items()]
            sys.stdout.write("\n".join([head, *options, ""]))
            sys.stdout.flush()
            signal.pause()
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
