"""Check the file systems of the store and the spool: whether synced data survives a power cut there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tailrace.doctor.finding import Finding, Severity, good, setting
from tailrace.doctor.host import Host, nearest

CHECK = "durability"

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
    """Yield one finding for each file system that is written to."""
    mounts = _mounts(host)
    uses: dict[Mount | None, list[str]] = {}
    for use, directory in host.directories.items():
        uses.setdefault(_mount(mounts, directory), []).append(use)
    for mount, names in uses.items():
        if mount is None:
            yield good(CHECK, f"The file system of the {' and '.join(names)} is not known.")
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
        return good(CHECK, f"{what}: what is synced survives a power cut.", **figures)
    return Finding(
        check=CHECK, severity=severity, what=what, why=why, commands=commands, figures=figures
    )


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


def _mount(mounts: list[Mount], directory: Path) -> Mount | None:
    """Return the mount of a directory, existing or not: the longest path, and the last mount of that
    path, since it hides others."""
    real = nearest(directory).resolve()
    above = [mount for mount in mounts if real.is_relative_to(mount.point)]
    return max(reversed(above), key=lambda mount: len(mount.point), default=None)
