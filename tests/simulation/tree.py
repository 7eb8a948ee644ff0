"""Simulate a directory of real files whose times, inodes and processes are those of a world.

The bytes and the names are those of the machine (in memory, if the machine has a file system in memory). Everything
that could differ from run to run is simulated: inode numbers, the device, and the times of files. A change may happen
between two system calls of the collector (`ambush`), as real changes do.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tailrace.sources.tail.location import System
from tests.simulation.world import BEGIN, MS, World

MEMORY = "/dev/shm"  # noqa: S108 - a file system in memory
DEVICE = 7
TICK = 4 * MS
"""The kernel's clock for the times of files advances in steps of this length (ns)."""
PATIENCE = 50 * MS
"""An ambush for which no call comes within this time (ns) happens by itself."""


@dataclass
class Node:
    inode: int
    birth: int
    written: int
    changed: int


class Tree:
    """`told` is called with the file and its size whenever the collector asks for the size."""

    def __init__(self, world: World, *, tick: int = TICK, reuses: bool = False) -> None:
        """`tick`: the times of files are multiples of this number of nanoseconds.

        `reuses`: a new file gets the inode number of a deleted one, as on ext4.
        """
        self._world = world
        self.wall = lambda: world.now
        """The wall clock of the files' host (Unix ns)."""
        self._tick = tick
        self._reuses = reuses
        place = MEMORY if os.access(MEMORY, os.W_OK) else None
        self.root = Path(tempfile.mkdtemp(prefix="tailrace-simulation-", dir=place))
        self._nodes: dict[int, Node] = {}
        self._free: list[int] = []
        self._inodes = 100
        self._ambushes: list[list[Callable[[], None] | int]] = []
        self.told: Callable[[int, int], None] = lambda inode, size: None
        """Function that is called with an inode number and the size that the collector was told."""
        self.forgotten: Callable[[], None] = lambda: None
        """Function that is called when a collector begins, because it then remembers only what is on its disk."""
        self.files = self.root / "files"
        self.processes = self.root / "proc"
        for directory in (self.root, self.files, self.processes):
            directory.mkdir(exist_ok=True)
            self._made(directory)
        self.system = System(self._stat, self._fstat, self._birth, str(self.processes))

    def close(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    # Calls of programs

    def create(self, path: Path) -> int:
        """Create a file, and its directories. Return a descriptor that appends to the file."""
        self._make_directories(path.parent)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        self._made(path)
        self._touch(path.parent)
        return fd

    def append(self, fd: int, data: bytes) -> None:
        if data:
            os.write(fd, data)
            self._written(fd)

    def empty(self, path: Path) -> int:
        """Open a file as O_TRUNC does. Return a descriptor that appends to the file."""
        fd = os.open(path, os.O_RDWR | os.O_TRUNC | os.O_APPEND)
        self._written(fd)
        return fd

    def write(self, path: Path, data: bytes) -> None:
        """Write a whole file in place."""
        fd = self.empty(path) if path.exists() else self.create(path)
        self.append(fd, data)
        os.close(fd)

    def rename(self, path: Path, to: Path) -> None:
        """Move a file, and replace another one if it exists."""
        self._make_directories(to.parent)
        if to.exists():
            self._unlinked(to)
        path.rename(to)
        self._node(to.stat().st_ino).changed = self._time
        self._touch(path.parent)
        self._touch(to.parent)

    def delete(self, path: Path) -> None:
        self._unlinked(path)
        path.unlink()
        self._touch(path.parent)

    def open_by(self, pid: int, number: int, file: Path) -> None:
        """Let a process have a file open under a descriptor of this number.

        If the process does not exist, create it.
        """
        place = self.processes / str(pid)
        if not place.exists():
            (place / "fd").mkdir(parents=True)
            fields = ["0"] * 18 + [str(self._world.age // MS)] + ["0"] * 30
            (place / "stat").write_text(f"{pid} (program) S {' '.join(fields)}\n")
        descriptor = place / "fd" / str(number)
        descriptor.unlink(missing_ok=True)
        descriptor.symlink_to(file)

    def closed_by(self, pid: int, number: int) -> bool:
        """Let a process close a file. If it was its last file, the process ends. Return whether it has ended."""
        place = self.processes / str(pid)
        (place / "fd" / str(number)).unlink()
        if any((place / "fd").iterdir()):
            return False
        shutil.rmtree(place)
        return True

    def inode(self, path: Path) -> int:
        return self._node(path.stat().st_ino).inode

    def ambush(self, calls: int, change: Callable[[], None]) -> None:
        """Let something happen before one of the collector's next calls. If there is none, let it happen soon."""
        entry: list[Callable[[], None] | int] = [calls, change]
        self._ambushes.append(entry)

        def late() -> None:
            if entry in self._ambushes:
                self._ambushes.remove(entry)
                change()

        self._world.after(PATIENCE, late)

    # Questions of the collector

    def _stat(self, path: str) -> os.stat_result:
        self._called()
        return self._told(Path(path).stat())

    def _fstat(self, fd: int) -> os.stat_result:
        self._called()
        return self._told(os.fstat(fd))

    def _birth(self, fd: int) -> int:
        return self._node(os.fstat(fd).st_ino).birth

    def _told(self, found: os.stat_result) -> os.stat_result:
        node = self._node(found.st_ino)
        self.told(node.inode, found.st_size)
        head = (found.st_mode, node.inode, DEVICE, found.st_nlink, 0, 0, found.st_size)
        seconds = (0, node.written // 10**9, node.changed // 10**9)
        times = {"st_mtime_ns": node.written, "st_ctime_ns": node.changed}
        return os.stat_result((*head, *seconds), times)

    def _called(self) -> None:
        due = []
        for entry in self._ambushes:
            assert isinstance(entry[0], int)
            entry[0] -= 1
            if entry[0] <= 0:
                due.append(entry)
        for entry in due:
            self._ambushes.remove(entry)
            change = entry[1]
            assert callable(change)
            change()

    # Inodes

    @property
    def _time(self) -> int:
        return self.wall() // self._tick * self._tick

    def _node(self, real: int) -> Node:
        """Return what is simulated for an inode of the machine. An inode outside of the tree is returned unchanged."""
        return self._nodes.setdefault(real, Node(1, BEGIN, BEGIN, BEGIN))

    def _made(self, path: Path) -> None:
        now = self._time
        self._nodes[path.stat().st_ino] = Node(self._new_inode(), now, now, now)

    def _new_inode(self) -> int:
        if self._reuses and self._free:
            return self._free.pop()
        self._inodes += 1
        return self._inodes

    def _unlinked(self, path: Path) -> None:
        """Record that a file loses its last name. Its inode number is free once no process has the file open."""
        real = path.stat().st_ino
        node = self._node(real)
        node.changed = self._time
        if self._reuses and not self._is_open(real):
            self._free.append(node.inode)

    def _is_open(self, real: int) -> bool:
        for descriptor in Path("/proc/self/fd").iterdir():
            try:
                if descriptor.stat().st_ino == real:
                    return True
            except OSError:
                continue
        return False

    def _written(self, fd: int) -> None:
        node = self._node(os.fstat(fd).st_ino)
        node.written = node.changed = self._time

    def _touch(self, directory: Path) -> None:
        node = self._node(directory.stat().st_ino)
        node.written = node.changed = self._time

    def _make_directories(self, directory: Path) -> None:
        if not directory.exists():
            self._make_directories(directory.parent)
            directory.mkdir()
            self._made(directory)
            self._touch(directory.parent)
