"""Simulate programs that write traces to files, and changes to the files."""

from __future__ import annotations

import os
import re
import zlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.simulation import facts
from tests.simulation.traces import TRACES, Trace
from tests.simulation.tree import Tree
from tests.simulation.world import World

TELLINGS = 3
"""Number of times that the system must tell a size before it counts.

Once or twice, it may answer a question about another file that had the same path.
"""


@dataclass
class File:
    """A trace on disk."""

    trace: Trace
    path: Path
    inode: int
    packed: bool
    fd: int
    begun: int
    """The age (ns) at which the file was created."""
    raw: bytes = b""
    """The file's content."""
    held: bytes = b""
    """The bytes that the program has not written yet."""
    given: int = 0
    """Number of bytes of content that are in `raw` or `held`."""
    members: list[tuple[int, int]] = field(default_factory=list)
    """For a file that its program compresses: the ends of gzip members, in the file and in the content."""
    readable: list[tuple[int, int]] = field(default_factory=list)
    """The ages (ns) at which how many bytes of content could be read."""
    alive: bool = True
    """Whether the program runs."""
    gone: str = ""
    """How the file lost its content or its last name; empty while it has both."""
    gone_at: int = 0
    moved: bool = False
    paths: list[str] = field(default_factory=list)
    """All paths that the file ever had, below the directory of its format."""
    copied: bool = False
    """Whether there was a compressed copy of the file, even an incomplete one."""
    unpacked: int | None = None
    """The inode number that the file had before it was compressed."""
    sizes: list[int] = field(default_factory=list)
    """The largest sizes that the collector was told of the file in the collector's present life, at most `TELLINGS`."""

    @property
    def told(self) -> int:
        """Return the size that the collector must have noticed."""
        return self.sizes[-1] if len(self.sizes) == TELLINGS else 0


class Written(NamedTuple):
    """The program that wrote a document last, and when (age, ns)."""

    trace: int
    at: int


class Writers:
    """All programs with files.

    `files` has each trace that was begun, by number. `documents` has the documents beside them, by format and path.
    """

    def __init__(self, world: World, tree: Tree) -> None:
        self.files: dict[int, File] = {}
        self.documents: dict[tuple[str, str], Written] = {}
        self._world = world
        self._tree = tree
        self._at: dict[Path, File] = {}
        self._ends: dict[int, list[int]] = defaultdict(list)
        """The ages (ns) at which processes ended, by process number."""
        tree.told = self._told
        tree.forgotten = self._forgotten

    def happen(self, fact: facts.OfTrace) -> None:
        """Let a fact happen now, or between two calls of the collector."""
        if fact.call:
            self._tree.ambush(fact.call, partial(self._happen, fact))
        else:
            self._happen(fact)

    def ends(self, file: File) -> list[int]:
        """Return the ages (ns) at which processes with the process number of a file ended."""
        pid = _pid(file.trace.path)
        return [] if pid is None else self._ends[pid]

    def close(self) -> None:
        for file in self.files.values():
            self._end(file)

    def _happen(self, fact: facts.OfTrace) -> None:
        if isinstance(fact, facts.BeginTrace):
            self._begin(fact)
            return
        file = self.files.get(fact.trace)
        if file is None:
            return
        match fact:
            case facts.WriteTrace() if file.alive:
                self._compose(file, fact)
                self._write(file, fact.held)
            case facts.EndTrace() if file.alive:
                file.trace.end()
                self._write(file, 0)
                self._document(file)
                self._end(file)
            case facts.KillWriter():
                self._end(file)
            case facts.MoveTrace() if not file.gone:
                self._move(file, self._place(file.trace.format, fact.path))
            case facts.PackTrace() if not file.gone and not file.alive and not file.packed:
                self._pack(file, fact)
            case facts.DeleteTrace() if not file.gone:
                self._lose(file, "deleted")
                self._tree.delete(file.path)
            case _:
                pass

    def _begin(self, fact: facts.BeginTrace) -> None:
        trace = TRACES[fact.format](fact.trace, fact.path)
        path = self._place(fact.format, fact.path)
        older = self._at.get(path)
        if older is None and path.exists():
            return  # gzip writes a copy at this path.
        if older is not None:
            self._end(older)
            self._lose(older, "replaced" if fact.anew else "emptied")
        if older is not None and not fact.anew:
            fd = self._tree.empty(path)
        else:
            if older is not None:
                self._tree.delete(path)
            fd = self._tree.create(path)
        inode = self._tree.inode(path)
        file = File(trace, path, inode, fact.packed, fd, self._world.age, paths=[fact.path])
        self.files[fact.trace] = self._at[path] = file
        if (pid := _pid(file.trace.path)) is not None:
            self._tree.open_by(pid, fact.trace, path)
        self._document(file)
        trace.begin()

    def _compose(self, file: File, fact: facts.WriteTrace) -> None:
        """Let the trace grow by what a fact states, in random order."""
        trace = file.trace
        random = Random(f"{trace.id}/{fact.at}")
        steps: list[Callable[[], None]] = [trace.record] * fact.count
        steps += [trace.garbage] * fact.garbage + [trace.skip] * fact.skipped
        random.shuffle(steps)
        for step in steps:
            step()

    def _write(self, file: File, held: int) -> None:
        """Write waiting and new bytes, except some at the end."""
        new = file.trace.content[file.given :]
        file.given = len(file.trace.content)
        if file.packed and new:
            new = _packed(new)
            file.members.append((len(file.raw) + len(file.held) + len(new), file.given))
        waiting = file.held + new
        size = max(0, len(waiting) - held)
        self._tree.append(file.fd, waiting[:size])
        file.raw += waiting[:size]
        file.held = waiting[size:]
        self._note(file)

    def _note(self, file: File) -> None:
        """Record how much content can be read now."""
        readable = len(file.raw)
        if file.packed:
            readable = max((c for raw, c in file.members if raw <= len(file.raw)), default=0)
        file.readable.append((self._world.age, readable))

    def _document(self, file: File) -> None:
        trace = file.trace
        if (name := trace.beside(trace.path)) is not None:
            self._tree.write(self._place(trace.format, name), trace.document())
            self.documents[trace.format, name] = Written(trace.id, self._world.age)

    def _end(self, file: File) -> None:
        """End the program. Bytes that it held back are lost."""
        if file.alive:
            file.alive = False
            os.close(file.fd)
            pid = _pid(file.trace.path)
            if pid is not None and self._tree.closed_by(pid, file.trace.id):
                self._ends[pid].append(self._world.age)

    def _move(self, file: File, to: Path) -> None:
        if file.packed and to.suffix != ".gz":
            to = to.with_name(to.name + ".gz")
        older = self._at.get(to)
        if older is file:
            return
        if older is not None:
            self._end(older)
            self._lose(older, "replaced")
        self._tree.rename(file.path, to)
        del self._at[file.path]
        file.path, file.moved = to, True
        file.paths.append(str(to.relative_to(self._place(file.trace.format, ""))))
        self._at[to] = file
        if file.alive and (pid := _pid(file.trace.path)) is not None:
            self._tree.open_by(pid, file.trace.id, to)

    def _pack(self, file: File, fact: facts.PackTrace) -> None:
        """Write a compressed copy beside the file in three steps, and then delete the file, as gzip does.

        gzip does not notice if another file is moved onto the copy meanwhile. The content is lost then. Without any
        record in the file, nothing would show whose copy it is.
        """
        to = file.path.with_name(file.path.name + ".gz")
        written = [p for p in file.trace.pieces if p.number is not None and p.end <= len(file.raw)]
        if to in self._at or to.exists() or not written:
            return
        content = file.raw
        cut = fact.cut % (len(content) + 1)
        data = (_packed(content[:cut]) if cut else b"") + _packed(content[cut:])
        fd = self._tree.create(to)
        file.copied = True
        third = len(data) // 3
        slices = [data[:third], data[third : 2 * third], data[2 * third :]]
        before = file.path

        def go_on(number: int) -> None:
            is_ours = to.exists() and to.samefile(f"/proc/self/fd/{fd}")
            if number < len(slices) and not file.gone and file.path == before:
                self._tree.append(fd, slices[number])
                self._world.after(fact.over // 3, partial(go_on, number + 1))
                return
            os.close(fd)
            if file.gone or file.path != before:
                if is_ours:
                    self._tree.delete(to)
                return
            if not is_ours:
                self._lose(file, "deleted")
                self._tree.delete(before)
                return
            self._tree.delete(before)
            del self._at[before]
            file.path, file.packed, file.raw, file.moved = to, True, data, True
            file.paths.append(file.paths[-1] + ".gz")
            file.unpacked, file.inode = file.inode, self._tree.inode(to)
            file.members = [(len(data), len(content))]
            self._at[to] = file

        go_on(0)

    def _lose(self, file: File, how: str) -> None:
        file.gone, file.gone_at = how, self._world.age
        if self._at.get(file.path) is file:
            del self._at[file.path]

    def _told(self, inode: int, size: int) -> None:
        for file in self.files.values():
            if file.inode == inode and not file.gone:
                file.sizes = sorted([*file.sizes, size], reverse=True)[:TELLINGS]

    def _forgotten(self) -> None:
        for file in self.files.values():
            file.sizes.clear()

    def _place(self, format_: str, path: str) -> Path:
        return self._tree.files / format_ / path


def _pid(path: str) -> int | None:
    """Return the process number in a path, if it contains one."""
    found = re.search(r"/proc\.([0-9]+)/", path)
    return int(found[1]) if found else None


def _packed(data: bytes) -> bytes:
    member = zlib.compressobj(wbits=31)
    return member.compress(data) + member.flush()
