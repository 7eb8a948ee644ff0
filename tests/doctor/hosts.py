"""Make hosts for the checks of the doctor: a configuration, an environment, and a root directory with files of the
test.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tailrace.clock import SystemClock
from tailrace.config.schema import (
    Config,
    StoreConfig,
    TailConfig,
    TcpConfig,
    UdpConfig,
    UnixConfig,
)
from tailrace.doctor.machine import Host
from tailrace.units import Size

HERE = Path("/")

without_privileges = pytest.mark.skipif(
    os.geteuid() == 0 and shutil.which("setpriv") is None,
    reason="root may read everything, and setpriv (util-linux) is not there to change that",
)
UNPRIVILEGED = (
    ["setpriv", "--bounding-set=-dac_override,-dac_read_search,-net_bind_service,-net_admin"]
    if os.geteuid() == 0
    else []
)
"""Return a prefix for a command, with which file modes apply to it even if root runs the test."""


class StoppedClock:
    """A clock that stands still, except that its monotonic time advances by `step` seconds at each reading."""

    def __init__(self, *, wall_ns=10**18, step=0.0):
        self.wall = wall_ns
        self.now = 1000.0
        self.step = step

    def wall_ns(self):
        return self.wall

    def monotonic(self):
        self.now += self.step
        return self.now


def host(store="/nowhere/store", *, root=HERE, environ=None, clock=None, **sections):
    """Return a host. `sections` are those of the configuration. Without sources in it, the host has none."""
    sections.setdefault("sources", {})
    config = Config(store=StoreConfig(path=str(store)), **sections)
    return Host(config, environ or {}, clock or SystemClock(), root)


def udp(buffer=2**14, listen="127.0.0.1:0"):
    return UdpConfig(format="heph", listen=listen, receive_buffer=Size(buffer))


def tcp(listen="127.0.0.1:0", **keys):
    return TcpConfig(format="jets", listen=listen, **keys)


def unix(path, **keys):
    return UnixConfig(format="jets", listen=str(path), **keys)


def tail(*paths, format_="jets"):
    return TailConfig(format=format_, paths=[str(path) for path in paths])


def put(root, **files):
    """Write files below a root directory. `__` in their names stands for a slash."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def severities(findings):
    return [finding.severity.value for finding in findings]


def only(findings, severity=None):
    """Return the only finding. If a severity is given, the finding must have it."""
    chosen = [f for f in findings if severity is None or f.severity == severity]
    assert len(chosen) == 1, chosen
    return chosen[0]
