"""The host as the checks see it: the kernel's files, the environment, the daemon and the clock."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tailrace.clock import STEP_NS, Clock
from tailrace.config.load import collector_path, spool_path, store_path
from tailrace.config.schema import Config
from tailrace.doctor.finding import Figures, Finding, Severity, good
from tailrace.store.presence import RunningCollector, find


class Host(NamedTuple):
    """One host and one configuration. `root` is the parent of /proc and /run."""

    config: Config
    environ: Mapping[str, str]
    clock: Clock
    root: Path = Path("/")
    daemon: RunningCollector | None = None

    @property
    def store(self) -> Path | None:
        """Return the store's directory, or None if it is not on this machine."""
        path = store_path(self.config, self.environ)
        return None if "://" in path else Path(path).absolute()

    @property
    def spool(self) -> Path:
        return Path(spool_path(self.config, self.environ)).absolute()

    @property
    def directories(self) -> dict[str, Path]:
        """Return the directories that are written to, by their use."""
        spool = {"spool": self.spool}
        return spool if self.store is None else {"store": self.store, **spool}

    def text(self, path: str) -> str | None:
        """Return the text of a file below the root, or None if it cannot be read."""
        try:
            return (self.root / path).read_text(errors="replace")
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        text = (self.text(path) or "").strip()
        return int(text) if text.isdecimal() else None

    def with_daemon(self) -> Host:
        """Return the same host with the daemon of the configuration's name that runs on its store, if any."""
        own = collector_path(self.config, self.environ).absolute()
        found = find(own, [own, self.spool], self.root, self.config.collector.name)
        return self._replace(daemon=found)


def nearest(path: Path) -> Path:
    """Return the path, or its nearest parent that exists."""
    return next(part for part in (path, *path.parents) if exists(part))


def exists(path: Path) -> bool:
    """Return whether the path exists and this user can see it."""
    try:
        return path.exists()
    except OSError:  # a parent directory cannot be entered
        return False


CLOCK = "clock"

LARGE_ERROR_US = 1_000_000
_UNSYNCHRONISED = 0x40


class _Timex(ctypes.Structure):
    """The head of the kernel's struct timex (uapi/linux/timex.h), with room for the rest."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def wall_minus_monotonic(host: Host) -> float:
    """Return wall time minus monotonic time in nanoseconds. It changes only by slewing, unless the clock
    is set."""
    return host.clock.wall_ns() - host.clock.monotonic() * 1e9


def check_clock(
    host: Host, before: float, *, kernel: Callable[[], tuple[int, int] | None] | None = None
) -> Iterator[Finding]:
    """Check for steps since `before`, an earlier `wall_minus_monotonic`, and for synchronisation.
    `kernel` replaces adjtimex."""
    yield from _steps(wall_minus_monotonic(host) - before)
    yield _synchronised(host, (kernel or adjtimex)())


def _steps(difference_ns: float) -> Iterator[Finding]:
    if abs(difference_ns) > STEP_NS:
        yield Finding(
            check=CLOCK,
            severity=Severity.PROBLEM,
            what=f"The wall clock was set by {difference_ns / 1e9:+.3f} s during the examination.",
            why="Arrival times jump with it, and sessions of one run seem to be apart.",
            commands=["timedatectl status", "chronyc tracking"],
            figures={"step_ns": int(difference_ns)},
        )


def _synchronised(host: Host, kernel: tuple[int, int] | None) -> Finding:
    if kernel is not None and not kernel[0] & _UNSYNCHRONISED:
        error_us = kernel[1]
        figures = {"max_error_us": error_us}
        if error_us <= LARGE_ERROR_US:
            return good(CLOCK, f"The clock is kept right to {error_us / 1e3:,.0f} ms.", **figures)
        return _advice(f"The clock may be wrong by {error_us / 1e6:,.1f} s.", figures)
    if (host.root / "run/systemd/timesync/synchronized").exists():
        return good(CLOCK, "The clock is kept right by systemd-timesyncd.")
    if kernel is None:
        return _advice("Nothing here shows whether the clock is kept right.", {})
    return _advice(
        "The kernel does not know that anything keeps the clock right"
        " (chrony without rtcsync, or a virtual machine's host, does not tell the kernel).",
        {"max_error_us": kernel[1]},
    )


def _advice(what: str, figures: Figures) -> Finding:
    return Finding(
        check=CLOCK,
        severity=Severity.ADVICE,
        what=what,
        why="Producers' own times are stored unchanged, and no gap depends on a clock. But arrival"
        " times, and runs on several machines, can be compared only if the clocks are right.",
        commands=["sudo timedatectl set-ntp true", "timedatectl status  # or: chronyc tracking"],
        figures=figures,
    )


def adjtimex() -> tuple[int, int] | None:
    """Return the kernel's status bits and greatest error in us, or None if it does not answer.

    This changes nothing."""
    if not sys.platform.startswith("linux"):
        return None
    timex = _Timex()
    library = ctypes.CDLL(None)
    if library.adjtimex(ctypes.byref(timex)) < 0:
        return None
    return timex.status, timex.maxerror
