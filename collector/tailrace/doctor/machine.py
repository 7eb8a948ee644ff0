"""Examine the clock of the host, and the disks of store and spool: permissions, free space, durability, speed.

`Host` gives all checks access to the kernel's files, the environment, the daemon and the clock.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shlex
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

from tailrace.clock import STEP_NS, Clock
from tailrace.config.load import collector_path, spool_path, store_path
from tailrace.config.schema import Config, TailConfig, TcpConfig, UdpConfig, UnixConfig
from tailrace.doctor.finding import KIB, MIB, HostFinding, advice, good, problem, setting, size
from tailrace.filesystem import free_room, refusal_text
from tailrace.store.presence import RunningCollector, find
from tailrace.units import Size

C = TypeVar("C", UdpConfig, TcpConfig, UnixConfig, TailConfig)


class Host(NamedTuple):
    """The host and the configuration that are examined. `root` is the directory that contains proc/ and run/."""

    config: Config
    environ: Mapping[str, str]
    clock: Clock
    root: Path = Path("/")
    daemon: RunningCollector | None = None

    @property
    def store(self) -> Path | None:
        """Return the store's directory, or None if the store is at a URL."""
        path = store_path(self.config, self.environ)
        return None if "://" in path else Path(path).absolute()

    @property
    def spool(self) -> Path:
        return Path(spool_path(self.config, self.environ)).absolute()

    @property
    def directories(self) -> dict[str, Path]:
        """Return the directories into which the collector writes, by the name `store` or `spool`."""
        spool = {"spool": self.spool}
        return spool if self.store is None else {"store": self.store, **spool}

    def sources(self, kind: type[C]) -> dict[str, C]:
        """Return the configured sources of one kind, by name."""
        return {n: each for n, each in self.config.sources.items() if isinstance(each, kind)}

    def text(self, path: str) -> str | None:
        """Return the text of the file at `path` below `root`, or None if the file is unreadable."""
        return text_of(self.root / path)

    def number(self, path: str) -> int | None:
        text = (self.text(path) or "").strip()
        return int(text) if text.isdecimal() else None

    def with_daemon(self) -> Host:
        """Return this host with the daemon that runs on the configured store under the configured name, if any."""
        own = collector_path(self.config, self.environ).absolute()
        found = find(own, [own, self.spool], self.root, self.config.collector.name)
        return self._replace(daemon=found)


def text_of(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None


def nearest(path: Path) -> Path:
    """Return the path itself if it exists, or else the nearest directory above it that exists."""
    return next(part for part in (path, *path.parents) if exists(part))


def exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        # the path counts as missing, because this user may not enter one of its parent directories
        return False


CLOCK = "clock"

LARGE_ERROR_US = 1_000_000
_UNSYNCHRONISED = 0x40


class _Timex(ctypes.Structure):
    """The first fields of the kernel's struct timex (uapi/linux/timex.h), and padding for all further ones."""

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
    """Return wall time minus monotonic time (ns), which changes only slowly while nobody sets the clock."""
    return host.clock.wall_ns() - host.clock.monotonic() * 1e9


def check_clock(host: Host, before: float) -> Iterator[HostFinding]:
    """Check whether the wall clock was set since `wall_minus_monotonic` returned `before`, and whether it is
    synchronised."""
    step = wall_minus_monotonic(host) - before
    if abs(step) > STEP_NS:
        yield problem(
            CLOCK,
            f"The wall clock was set by {step / 1e9:+.3f} s during the examination.",
            "Arrival times jump with it, and sessions of one run seem to be apart.",
            "timedatectl status",
            "chronyc tracking",
            step_ns=int(step),
        )
    status, error_us = adjtimex() or (_UNSYNCHRONISED, None)
    figures = {} if error_us is None else {"max_error_us": error_us}
    if error_us is not None and not status & _UNSYNCHRONISED:
        if error_us <= LARGE_ERROR_US:
            yield good(CLOCK, f"The clock is kept right to {error_us / 1e3:,.0f} ms.", **figures)
            return
        what = f"The clock may be wrong by {error_us / 1e6:,.1f} s."
    elif (host.root / "run/systemd/timesync/synchronized").exists():
        yield good(CLOCK, "The clock is kept right by systemd-timesyncd.")
        return
    elif error_us is None:
        what = "Nothing here shows whether the clock is kept right."
    else:
        what = (
            "The kernel does not know that anything keeps the clock right"
            " (chrony without rtcsync, or a virtual machine's host, does not tell the kernel)."
        )
    yield advice(
        CLOCK,
        what,
        "Producers' own times are stored unchanged, and no gap depends on a clock. But arrival"
        " times, and runs on several machines, can be compared only if the clocks are right.",
        "sudo timedatectl set-ntp true",
        "timedatectl status  # or: chronyc tracking",
        **figures,
    )


def adjtimex() -> tuple[int, int] | None:
    """Return the status bits of the kernel's clock and its maximum error (µs), or None if the call fails."""
    if not sys.platform.startswith("linux"):
        return None
    timex = _Timex()
    failed = ctypes.CDLL(None).adjtimex(ctypes.byref(timex)) < 0
    return None if failed else (timex.status, timex.maxerror)


DIRECTORIES = "directories"

SPACE = "disk space"

FILES = 2000
"""Approximate maximum number of files in a store: log entries, the newest days' small files, locks, and segments."""


def check_directories(host: Host) -> Iterator[HostFinding]:
    for use, directory in host.directories.items():
        yield _writable(use, directory)
    yield from _space(host)
    yield from _inodes(host)


def _writable(use: str, directory: Path) -> HostFinding:
    place = nearest(directory)
    elsewhere = setting(use, "path", f"$HOME/tailrace-{use}").replace("'", '"')
    if not place.is_dir():
        return problem(
            DIRECTORIES,
            f"The {use}'s directory cannot be created: {place} is not a directory.",
            "The collector does not start without it.",
            f"ls -ld {shlex.quote(str(place))}",
            elsewhere,
            directory=str(directory),
        )
    # Examine these paths too, because another user's collector may have created them
    names = ("lock", "events", "events/_delta_log", "quarantine", "identity")
    written = [path for name in names if exists(path := directory / name)]
    locked = [path for path in written if not os.access(path, os.W_OK)]
    if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        locked.insert(0, place)
    if locked:
        command = "chown -R" if place == directory else "install -d -o"
        return problem(
            DIRECTORIES,
            f"This user may not write to {locked[0]}, which belongs to the {use}.",
            "The collector does not start. Run `tailrace doctor` as the user that the collector runs as.",
            f'sudo {command} "$(id -un)" {shlex.quote(str(directory))}',
            elsewhere,
            directory=str(directory),
        )
    made = "can be written to" if place == directory else f"can be created in {place}"
    return good(DIRECTORIES, f"The {use}, {directory}, {made}.", directory=str(directory))


def _space(host: Host) -> Iterator[HostFinding]:
    """Check whether the disk has enough free space for a full spool and, on the same disk, for the quarantine."""
    config = host.config
    place = nearest(host.spool)
    try:
        free = shutil.disk_usage(place).free
    except OSError:
        return  # check no further, because `_writable` has already reported this directory
    held = 0
    with contextlib.suppress(OSError):
        for path in host.spool.glob("*.segment"):
            # A running collector may remove segments meanwhile
            with contextlib.suppress(FileNotFoundError):
                held += path.stat().st_size
    limit = int(config.spool.max_size)
    same = host.store is not None and nearest(host.store).stat().st_dev == place.stat().st_dev
    needed = max(limit - held, 0) + (int(config.quarantine.max_size) if same else 0)
    figures = {"free_bytes": free, "needed_bytes": needed}
    if free >= needed:
        text = f"{size(free)} are free for the spool, which takes at most {size(limit)}."
        yield good(SPACE, text, **figures)
        return
    fitting = Size(max((free + held) // 2 // MIB, 1) * MIB)
    yield (problem if free < 2 * int(config.spool.segment_size) else advice)(
        SPACE,
        f"{size(free)} are free in {place}, and the spool may take {size(limit)}.",
        "When the disk is full, sources wait: TCP peers block and the kernel drops datagrams,"
        " before the spool reaches its limit.",
        f"df -h {shlex.quote(str(place))}",
        setting("spool", "max_size", str(fitting)),
        **figures,
    )


def _inodes(host: Host) -> Iterator[HostFinding]:
    """Check whether the disks have free inodes, without which no file can be created."""
    seen = set()
    for directory in host.directories.values():
        try:
            free = free_room(directory)
        except OSError:
            continue  # skip this directory, because `_writable` has already reported it
        if free.inodes is None or free.inodes >= FILES or free.mount in seen:
            continue
        seen.add(free.mount)
        mount = shlex.quote(str(free.mount))
        left = f"{free.mount} has {free.inodes} free inodes"
        if free.lack:
            left = f"No inodes are left on {free.mount}"
        yield (problem if free.lack else advice)(
            SPACE,
            f"{left}, one for each file that can be made; a store takes up to {FILES}.",
            "Without inodes no file can be created, even if bytes are free: the spool keeps received data, then sources wait.",
            f"df -i {mount}",
            f"du --inodes -d1 {mount} | sort -n | tail",
            free_inodes=free.inodes,
            needed_inodes=FILES,
        )


DURABILITY = "durability"

FORGETS = {"tmpfs", "ramfs"}
REMOTE = {"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "lustre", "beegfs", "gpfs", "afs", "virtiofs"}  # fmt: skip
LAYERED = {"overlay", "aufs"}

_OCTAL = re.compile(r"\\([0-7]{3})")
_UNSAFE = {"nobarrier", "barrier=0", "barrier=none"}


class Mount(NamedTuple):
    point: str
    kind: str
    options: frozenset[str]


def check_durability(host: Host) -> Iterator[HostFinding]:
    """Yield, for each file system to which the collector writes, whether synced data survives a power cut."""
    mounts = _mounts(host)
    uses: dict[Mount | None, list[str]] = {}
    for use, directory in host.directories.items():
        # Take the mount with the longest path, and of several with this path the last one, which hides the others.
        real = nearest(directory).resolve()
        above = [mount for mount in reversed(mounts) if real.is_relative_to(mount.point)]
        mount = max(above, key=lambda mount: len(mount.point), default=None)
        uses.setdefault(mount, []).append(use)
    for mount, names in uses.items():
        if mount is None:
            yield good(DURABILITY, f"The file system of the {' and '.join(names)} is not known.")
        else:
            yield _kind(mount, " and ".join(names))


def _kind(mount: Mount, uses: str) -> HostFinding:
    figures = {"file_system": mount.kind, "mount": mount.point}
    what = f"The file system of the {uses} is {mount.kind}, mounted at {mount.point}"
    make, commands = advice, [f"findmnt --target {shlex.quote(mount.point)}"]
    if mount.kind in FORGETS:
        make, what = problem, f"{what}, which is memory."
        why = "Everything that was collected, even if acknowledged, is gone after the next reboot."
        commands.append(setting("store", "path", "/var/lib/tailrace"))
    elif mount.kind in LAYERED:
        what += ", a container's own layer."
        why = "Data there survives a crash of the collector, and is deleted with the container."
        commands = ["docker run -v tailrace:/var/lib/tailrace …  # a volume outlives it"]
    elif mount.kind in REMOTE or mount.kind.startswith("fuse"):
        what += ", on another machine or behind another program."
        why = (
            "A sync is only as good as that server's, and takes a round trip. Locks hold between"
            " machines only if the server keeps them: never run two collectors on it."
        )
        commands.append(setting("spool", "path", "/var/lib/tailrace/spool"))
    elif unsafe := sorted(mount.options & _UNSAFE):
        what += f" with {unsafe[0]}."
        why = "A power cut can destroy data that the disk reported as written."
        commands.append(f"sudo mount -o remount,barrier=1 {shlex.quote(mount.point)}")
    else:
        return good(DURABILITY, f"{what}: what is synced survives a power cut.", **figures)
    return make(DURABILITY, what, why, *commands, **figures)


def _mounts(host: Host) -> list[Mount]:
    """Parse /proc/self/mountinfo: `ID PARENT DEV ROOT POINT OPTIONS [TAGS…] - KIND SOURCE SUPER`."""
    mounts = []
    for line in (host.text("proc/self/mountinfo") or "").splitlines():
        fields = line.split()
        if "-" not in fields[6:-3]:
            continue
        dash = fields.index("-", 6)
        point = _OCTAL.sub(lambda code: chr(int(code[1], 8)), fields[4])
        options = frozenset([*fields[5].split(","), *fields[dash + 3].split(",")])
        mounts.append(Mount(point, fields[dash + 1], options))
    return mounts


SPEED = "disk speed"

SYNC_BYTES = 64 * KIB
"""Number of bytes that the spool writes between two syncs, if 20,000 small events arrive each second."""
SYNCS = 16
BLOCK = MIB
BYTES_MAX = 32 * MIB
SYNC_SECONDS = 0.6
WRITE_SECONDS = 0.8

SLOW_MB_PER_SECOND = 20.0
"""Throughput of a disk (MB/s) below which the check gives advice: the spool needs it for 250,000 events a second."""


def check_speed(host: Host) -> Iterator[HostFinding]:
    place = nearest(host.spool)
    if not os.access(place, os.W_OK | os.X_OK) or not place.is_dir():
        return
    try:
        # Write to a temporary file without a name, if the file system supports that. Otherwise remove the name at once.
        with tempfile.TemporaryFile(dir=place, buffering=0) as file:
            latencies = _syncs(file, host.clock)
            rate = _throughput(file, host.clock)
    except OSError as error:
        yield problem(
            SPEED,
            f"A file in {place} could not be written and synced: {refusal_text(error.errno, place)}.",
            "The collector ends when a sync fails, because no data is safe then.",
            "sudo dmesg --level=err,warn | tail",
        )
        return
    interval = host.config.spool.sync_interval
    median, worst = statistics.median(latencies) * 1e3, max(latencies) * 1e3
    figures = {"sync_ms": round(median, 3), "sync_worst_ms": round(worst, 3), "mb_per_s": rate}
    what = (
        f"The spool's disk syncs in {median:.1f} ms (the slowest of {len(latencies)}: {worst:.1f})"
        f" and writes {rate:,.0f} MB/s."
    )
    commands = [setting("spool", "path", "/a/faster/disk")]
    if median > interval * 1e3:
        commands.append(setting("spool", "sync_interval", f"{2 * median:.0f} ms"))
    elif rate >= SLOW_MB_PER_SECOND:
        yield good(SPEED, what, **figures)
        return
    yield advice(
        SPEED,
        what,
        f"Bytes are decoded only after a sync, every {interval}. On a slow disk, rows come later,"
        " and sources wait when they send more than it writes.",
        *commands,
        **figures,
    )


def _syncs(file: BinaryIO, clock: Clock) -> list[float]:
    """Measure several small writes, each with a sync. Return the duration (seconds) of each."""
    latencies: list[float] = []
    piece = os.urandom(SYNC_BYTES)
    end = clock.monotonic() + SYNC_SECONDS
    while not latencies or (len(latencies) < SYNCS and clock.monotonic() < end):
        before = clock.monotonic()
        file.write(piece)
        os.fdatasync(file.fileno())
        latencies.append(clock.monotonic() - before)
    return latencies


def _throughput(file: BinaryIO, clock: Clock) -> float:
    """Measure large writes, with a sync after every four. Return the throughput (MB/s)."""
    block = os.urandom(BLOCK)
    before = now = clock.monotonic()
    written = 0
    while written < BYTES_MAX and now < before + WRITE_SECONDS:
        for _ in range(4):
            written += file.write(block)
        os.fdatasync(file.fileno())
        now = clock.monotonic()
    return round(written / max(now - before, 1e-9) / 1e6, 1)
