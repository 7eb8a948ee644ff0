"""Run rsyslog from the distribution.

It copies what it receives by sockets, or reads from files, to a file that it does not sync.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers.output import Output
from benchmarks.peers.peer import Peer
from benchmarks.places import CONFIGURATIONS
from benchmarks.processes.sending import Address
from tests.system.collector import until

PROGRAM = "rsyslogd"
INSTALL = "apt-get install rsyslog"
LONGEST_SECONDS = 1200.0
_SILENCE_SECONDS = 2.0
_POLL_SECONDS = 0.02


def peer(configuration: str, does: str) -> Peer:
    """Return the description of rsyslog with one of its configurations."""
    found = shutil.which(PROGRAM) or shutil.which(PROGRAM, path="/usr/sbin:/sbin")
    version = ""
    if found:
        said = subprocess.run([found, "-v"], capture_output=True, text=True, check=True).stdout
        version = said.split()[1]
    return Peer("rsyslog", version, INSTALL, does, configuration)


class Running(NamedTuple):
    """A running rsyslog: the address at which it listens, and the file that it writes."""

    process: int
    address: Address
    output: Path

    def await_written(self, mark: bytes, expected: int) -> tuple[int, float]:
        """Wait until the file contains the given number of marks, or has not grown for a long time.

        Return the number of marks, and the time at which the last one appeared.
        """
        output = Output(self.output, mark)
        grown = time.monotonic()

        def done() -> bool:
            nonlocal grown
            if output.look():
                grown = time.monotonic()
            return output.count >= expected or time.monotonic() - grown > _SILENCE_SECONDS

        until(done, "rsyslog to write", LONGEST_SECONDS, _POLL_SECONDS)
        return output.count, grown


@contextmanager
def rsyslog(home: Path, configuration: str, files: str = "") -> Iterator[Running]:
    """Run rsyslog on a free port, or on `files`. Wait until it is ready."""
    home.mkdir(parents=True, exist_ok=True)
    datagrams = configuration.startswith("rsyslog-datagrams")
    kind = socket.SOCK_DGRAM if datagrams else socket.SOCK_STREAM
    port = _free_port(kind)
    environ = {"BENCH_FILE": f"{home}/output", "BENCH_PORT": str(port), "BENCH_HOME": str(home), "BENCH_FILES": files}  # fmt: skip
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    command = [
        PROGRAM,
        "-n",
        "-f",
        f"{CONFIGURATIONS}/{configuration}",
        "-i",
        f"{home}/rsyslog.pid",
    ]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, env=os.environ | environ | {"PATH": path}, stdout=log, stderr=log)  # fmt: skip
    try:
        if not files:
            table = "udp" if kind == socket.SOCK_DGRAM else "tcp"
            until(lambda: _bound(table, port), f"rsyslog; it said {(home / 'log').read_text()}")
        yield Running(process.pid, ("127.0.0.1", port), home / "output")
    finally:
        process.kill()
        process.wait()


def _free_port(kind: int) -> int:
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def _bound(table: str, port: int) -> bool:
    return f":{port:04X} " in Path(f"/proc/net/{table}").read_text()
