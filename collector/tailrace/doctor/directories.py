"""The directories that are written to: may they be, on what file system are they, is there room?"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tailrace.doctor.finding import Finding, Severity, good, setting, size, whole_size
from tailrace.doctor.host import Host, exists, nearest

CHECK = "directories"

SPACE = "disk space"
DURABILITY = "durability"

FORGETS = {"tmpfs", "ramfs"}
REMOTE = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "9p",
    "ceph",
    "lustre",
    "beegfs",
    "gpfs",
    "afs",
    "virtiofs",
}
LAYERED = {"overlay", "aufs"}

_OCTAL = re.compile(r"\\([0-7]{3})")
_UNSAFE = {"nobarrier", "barrier=0", "barrier=none"}


class Mount(NamedTuple):
    point: str
    kind: str
    options: frozenset[str]


def check(host: Host) -> Iterator[Finding]:
    for use, directory in host.directories.items():
        yield _writable(use, directory)
    yield from _kinds(host)
    yield from _space(host)


def _writable(use: str, directory: Path) -> Finding:
    place = nearest(directory)
    figures = {"directory": str(directory)}
    me = '"$(id -un)"'
    if not place.is_dir():
        return Finding(
            check=CHECK,
            severity=Severity.PROBLEM,
            what=f"The {use}'s directory cannot be made: {place} is not a directory.",
            why="The collector does not start without it.",
            commands=[f"ls -ld {shlex.quote(str(place))}", _elsewhere(use)],
            figures=figures,
        )
    locked = [path for path in _written(directory) if not os.access(path, os.W_OK)]
    if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        locked.insert(0, place)
    if locked:
        commands = [_elsewhere(use)]
        if place == directory:
            commands.insert(0, f"sudo chown -R {me} {shlex.quote(str(directory))}")
        else:
            commands.insert(0, f"sudo install -d -o {me} {shlex.quote(str(directory))}")
        return Finding(
            check=CHECK,
            severity=Severity.PROBLEM,
            what=f"This user may not write to {locked[0]}, which is of the {use}.",
            why="The collector does not start; run this command as the user it runs as.",
            commands=commands,
            figures=figures,
        )
    made = "can be written to" if place == directory else f"can be made in {place}"
    return good(CHECK, f"The {use}, {directory}, {made}.", **figures)


def _written(directory: Path) -> list[Path]:
    """What an earlier life, perhaps another user's, left there and a new one writes to."""
    names = ("lock", "events", "events/_delta_log", "quarantine", "identity")
    return [path for name in names if exists(path := directory / name)]


def _elsewhere(use: str) -> str:
    return setting(use, "path", f"$HOME/tailrace-{use}").replace("'", '"')


def _kinds(host: Host) -> Iterator[Finding]:
    """One finding for each file system that is written to."""
    mounts = _mounts(host)
    uses: dict[Mount | None, list[str]] = {}
    for use, directory in host.directories.items():
        uses.setdefault(_mount(mounts, directory), []).append(use)
    for mount, names in uses.items():
        if mount is None:
            yield good(DURABILITY, f"The file system of the {' and '.join(names)} is not known.")
        else:
            yield _kind(mount, " and ".join(names))


def _kind(mount: Mount, uses: str) -> Finding:
    figures = {"file_system": mount.kind, "mount": mount.point}
    what = f"The file system of the {uses} is {mount.kind}, mounted at {mount.point}"
    why, severity = "", Severity.ADVICE
    commands = [f"findmnt --target {shlex.quote(mount.point)}"]
    if mount.kind in FORGETS:
        what += ", which is memory."
        severity = Severity.PROBLEM
        why = "All that was collected is gone with the next reboot, whatever was acknowledged."
        commands.append(setting("store", "path", "/var/lib/tailrace"))
    elif mount.kind in LAYERED:
        what += ", a container's own layer."
        why = "It survives a crash of the collector, and is deleted with the container."
        commands = ["docker run -v tailrace:/var/lib/tailrace …  # a volume outlives it"]
    elif mount.kind in REMOTE or mount.kind.startswith("fuse"):
        what += ", on another machine or behind another program."
        why = (
            "A sync is as good as that server's, and takes a round trip; locks hold between"
            " machines only where the server keeps them: never run two collectors on it."
        )
        commands.append(setting("spool", "path", "/var/lib/tailrace/spool"))
    elif unsafe := sorted(mount.options & _UNSAFE):
        what += f" with {unsafe[0]}."
        why = "A power cut can take what the disk has said to have written."
        commands.append(f"sudo mount -o remount,barrier=1 {shlex.quote(mount.point)}")
    else:
        return good(DURABILITY, f"{what}: what is synced survives a power cut.", **figures)
    return Finding(
        check=DURABILITY, severity=severity, what=what, why=why, commands=commands, figures=figures
    )


def _mounts(host: Host) -> list[Mount]:
    """Of /proc/self/mountinfo: `ID PARENT DEV ROOT POINT OPTIONS [TAGS…] - KIND SOURCE SUPER`."""
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


def _mount(mounts: list[Mount], directory: Path) -> Mount | None:
    """The mount that a directory is, or would be, in: the longest; the last of those hides others."""
    real = nearest(directory).resolve()
    above = [mount for mount in mounts if real.is_relative_to(mount.point)]
    return max(reversed(above), key=lambda mount: len(mount.point), default=None)


def _space(host: Host) -> Iterator[Finding]:
    """Room for the spool at its limit and the quarantine; the table grows as long as it may."""
    config = host.config
    place = nearest(host.spool)
    try:
        free = shutil.disk_usage(place).free
    except OSError:
        return  # that it cannot be entered has been said
    held = sum(path.stat().st_size for path in _segments(host.spool))
    limit = int(config.spool.max_size)
    same = host.store is not None and nearest(host.store).stat().st_dev == place.stat().st_dev
    needed = max(limit - held, 0) + (int(config.quarantine.max_size) if same else 0)
    least = 2 * int(config.spool.segment_size)
    figures = {"free_bytes": free, "needed_bytes": needed}
    if free >= needed:
        yield good(
            SPACE,
            f"{size(free)} are free for the spool, which takes at most {size(limit)}.",
            **figures,
        )
        return
    yield Finding(
        check=SPACE,
        severity=Severity.PROBLEM if free < least else Severity.ADVICE,
        what=f"{size(free)} are free in {place}, and the spool may take {size(limit)}.",
        why="When the disk is full sources wait: TCP peers block and the kernel drops datagrams,"
        " before the limit that was meant to prevent it.",
        commands=[
            f"df -h {shlex.quote(str(place))}",
            setting("spool", "max_size", whole_size((free + held) // 2)),
        ],
        figures=figures,
    )


def _segments(spool: Path) -> list[Path]:
    try:
        return list(spool.glob("*.segment"))
    except OSError:
        return []
