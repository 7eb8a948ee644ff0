"""Check that the directories can be written to, and have room."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

from tailrace.doctor.finding import Finding, Severity, good, setting, size, whole_size
from tailrace.doctor.host import Host, exists, nearest
from tailrace.filesystem import free_room

CHECK = "directories"

SPACE = "disk space"

FILES = 2000
"""Files that a store has at most, about: 1,000 log entries, the newest days' small files, locks, and segments."""


def check(host: Host) -> Iterator[Finding]:
    for use, directory in host.directories.items():
        yield _writable(use, directory)
    yield from _space(host)
    yield from _inodes(host)


def _writable(use: str, directory: Path) -> Finding:
    place = nearest(directory)
    figures = {"directory": str(directory)}
    me = '"$(id -un)"'
    if not place.is_dir():
        return Finding(
            check=CHECK,
            severity=Severity.PROBLEM,
            what=f"The {use}'s directory cannot be created: {place} is not a directory.",
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
            what=f"This user may not write to {locked[0]}, which belongs to the {use}.",
            why="The collector does not start. Run `tailrace doctor` as the user that the collector runs as.",
            commands=commands,
            figures=figures,
        )
    made = "can be written to" if place == directory else f"can be created in {place}"
    return good(CHECK, f"The {use}, {directory}, {made}.", **figures)


def _written(directory: Path) -> list[Path]:
    """Return the paths that an earlier collector, perhaps of another user, left and a new one writes to."""
    names = ("lock", "events", "events/_delta_log", "quarantine", "identity")
    return [path for name in names if exists(path := directory / name)]


def _elsewhere(use: str) -> str:
    return setting(use, "path", f"$HOME/tailrace-{use}").replace("'", '"')


def _space(host: Host) -> Iterator[Finding]:
    """Check the room for the spool at its limit and the quarantine. The table has no limit."""
    config = host.config
    place = nearest(host.spool)
    try:
        free = shutil.disk_usage(place).free
    except OSError:
        return  # `_writable` has reported that the directory cannot be entered
    held = _held(host.spool)
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
        why="When the disk is full, sources wait: TCP peers block and the kernel drops datagrams,"
        " before the spool reaches its limit.",
        commands=[
            f"df -h {shlex.quote(str(place))}",
            setting("spool", "max_size", whole_size((free + held) // 2)),
        ],
        figures=figures,
    )


def _inodes(host: Host) -> Iterator[Finding]:
    """Check the inodes: a disk that has room for bytes may have none for files."""
    seen = set()
    for directory in host.directories.values():
        try:
            free = free_room(directory)
        except OSError:
            continue  # `_writable` has reported that the directory cannot be entered
        if free.inodes is None or free.inodes >= FILES or free.mount in seen:
            continue
        seen.add(free.mount)
        left = (
            f"no inodes are left on {free.mount}"
            if free.lack
            else f"{free.mount} has {free.inodes} free inodes"
        )
        yield Finding(
            check=SPACE,
            severity=Severity.PROBLEM if free.lack else Severity.ADVICE,
            what=f"{left[0].upper()}{left[1:]}, one for each file that can be made; a store takes up to {FILES}.",
            why="Without inodes no file can be made, whatever room there is: the spool keeps what comes, then sources wait.",
            commands=[
                f"df -i {shlex.quote(str(free.mount))}",
                f"du --inodes -d1 {shlex.quote(str(free.mount))} | sort -n | tail",
            ],
            figures={"free_inodes": free.inodes, "needed_inodes": FILES},
        )


def _held(spool: Path) -> int:
    """Return the bytes of the existing segments. A running collector may be removing some."""
    total = 0
    with contextlib.suppress(OSError):
        for path in spool.glob("*.segment"):
            with contextlib.suppress(FileNotFoundError):
                total += path.stat().st_size
    return total
