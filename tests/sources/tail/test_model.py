"""Writers do to files what writers do, a source follows and is stopped and started; in the end each
incarnation of a file is in one session, as far as there was time to read it, and in no other."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import tempfile
from pathlib import Path

import trio
from hypothesis import Phase, example, given, strategies as st
from trio.testing import MockClock

from tailrace.sources.source import CHUNK_MAX
from tailrace.sources.tail.location import System
from tests.forms import examples
from tests.sources.tail.recorder import Recorder, Tail

PLAIN = ("a", "b", "sub/c")
NAMES = (*PLAIN, "a.gz", "b.gz")
ACTIONS = (
    "create", "append", "append", "truncate", "truncate_late", "rewrite", "rename", "gzip", "delete",
)  # fmt: skip
PHASES = [p for p in Phase if p != Phase.explain]
SETTLED = 30.0
"""Seconds after which all is read that can be."""


class Incarnation:
    def __init__(self, number: int) -> None:
        self.number = number
        self.content = b""
        self.sure = 0
        """Bytes that must have been read."""
        self.deleted = False
        self.looked: str | None = None
        """The name under which the source looked at the file last."""
        self.packed = False
        """Whether the file is a copy at whose first name the source has not looked yet."""

    def grow(self, size: int) -> bytes:
        """More bytes; no two incarnations have bytes in common after the first two."""
        more = b"" if self.content else b"xx%08d:" % self.number
        more += random.Random(len(self.content) * 7919 + self.number).randbytes(size)
        self.content += more
        return more


class World:
    def __init__(self, directory: Path, recorder: Recorder) -> None:
        self.directory = directory
        self.recorder = recorder
        self.files: dict[str, Incarnation] = {}
        self.all: list[Incarnation] = []
        self.tail: Tail | None = None
        self.full = False
        self.ticks = 0
        self.late: dict[str, int] = {}
        """Files that are emptied once the source has found their size, before it reads them; so many bytes
        are written then."""
        (directory / "sub").mkdir()

    def path(self, name: str) -> Path:
        return self.directory / name

    def new(self, before: Incarnation | None = None) -> Incarnation:
        """A new incarnation, in the same file as the one before."""
        self.all.append(Incarnation(len(self.all)))
        if before is not None:
            before.deleted = True
            self.all[-1].looked, self.all[-1].packed = before.looked, before.packed
        return self.all[-1]

    def packed(self, name: str, data: bytes) -> bytes:
        return gzip.compress(data, 1) if name.endswith(".gz") else data

    def put(self, name: str, mode: str, data: bytes) -> None:
        """Write and see to it that the times tell: two changes may come within one tick."""
        path = self.path(name)
        with path.open(mode) as file:
            file.write(self.packed(name, data))
        self.touch(path)

    def touch(self, path: Path) -> None:
        self.ticks += 1
        os.utime(path, ns=(self.ticks * 10**9, self.ticks * 10**9))

    def create(self, name: str, size: int) -> None:
        """A new file, in place of one that may be there."""
        self.delete(name)
        self.files[name] = self.new()
        self.put(name, "wb", self.files[name].grow(size))

    def append(self, name: str, size: int) -> None:
        if name in self.files:
            self.put(name, "ab", self.files[name].grow(size))

    def truncate(self, name: str, size: int) -> None:
        """O_TRUNC and from the beginning; what was not read by now may never be."""
        if name in self.files:
            self.files[name] = self.new(self.files[name])
            self.put(name, "wb", self.files[name].grow(size))

    def truncate_late(self, name: str, size: int) -> None:
        """Append, and truncate once the source has found the new size."""
        if name in self.files:
            self.append(name, size)
            self.late[name] = size // 4

    def stat(self, path: str) -> os.stat_result:
        """Answer the source, and do at once what was to come late."""
        found = Path(path).stat()
        name = str(Path(path).relative_to(self.directory))
        if name in self.late:
            self.truncate(name, self.late.pop(name))
        if name in self.files:
            self.files[name].looked, self.files[name].packed = name, False
        return found

    def rewrite(self, name: str, size: int) -> None:
        """Over the old bytes, without truncation, at least as many."""
        if name in self.files and not name.endswith(".gz"):
            before = self.files[name]
            self.files[name] = self.new(before)
            self.put(name, "r+b", self.files[name].grow(len(before.content) + size))

    def rename(self, name: str, size: int) -> None:
        names = [n for n in NAMES if n.endswith(".gz") == name.endswith(".gz") and n != name]
        to = names[size % len(names)]
        if name in self.files and not self.files[name].packed:
            self.path(name).replace(self.path(to))
            if to in self.files:
                self.files[to].deleted = True
            self.files[to] = self.files.pop(name)

    def gzip(self, name: str, size: int) -> None:
        """Nobody can tell of which file this is a copy if its name has changed, too, since the source looked."""
        to = name + ".gz"
        if name in self.files and to in NAMES and self.files[name].looked in {None, name}:
            self.files[name].packed = self.files[name].looked is not None
            self.delete(to)
            content = self.files[name].content
            cut = size % (len(content) + 1)
            members = gzip.compress(content[:cut], 1) + gzip.compress(content[cut:], 9)
            self.path(to).write_bytes(members)
            self.path(name).unlink()
            self.files[to] = self.files.pop(name)

    def delete(self, name: str, size: int = 0) -> None:
        if name in self.files:
            self.path(name).unlink()
            self.files.pop(name).deleted = True

    def fill(self, name: str, size: int) -> None:
        self.full = True
        self.recorder.fill()

    def drain(self, name: str, size: int) -> None:
        self.full = False
        self.recorder.drain()

    async def rest(self, seconds: float) -> None:
        await trio.sleep(seconds)
        if seconds >= SETTLED and self.tail is not None and not self.full:
            for incarnation in self.files.values():
                incarnation.sure = len(incarnation.content)

    async def stop(self) -> None:
        if self.tail is not None:
            await self.tail.stop()
            self.tail = None
            for name, incarnation in self.files.items():  # it forgets which files are copies
                incarnation.packed |= name.endswith(".gz") and incarnation.looked is not None

    def check(self) -> None:
        found: dict[int, bytes] = {}
        for session in self.recorder.sessions:
            content = bytes(session.content)
            if not content:
                assert session.lost("unread"), "a session says nothing"
                continue
            number = int(content[2:10])
            assert number not in found, "an incarnation is read twice"
            found[number] = content
            whole = self.all[number].content
            assert whole.startswith(content)
            assert content != whole or not session.lost("unread"), "what was read is called lost"
        blank = len(self.recorder.sessions) - len(found)
        assert blank <= len(self.all) - len(found), "a loss is named that was none"
        for incarnation in self.all:
            content = found.get(incarnation.number, b"")
            assert len(content) >= incarnation.sure, "bytes are missing"
        for name, incarnation in self.files.items():
            assert found.get(incarnation.number) == incarnation.content, name
        live = {found_.facts.path for found_ in self.recorder.files().values()}
        assert live == {str(self.path(name)) for name in self.files}


steps = st.one_of(
    st.tuples(
        st.sampled_from(ACTIONS),
        st.sampled_from(NAMES),
        st.one_of(st.integers(0, 400), st.integers(0, 2 * CHUNK_MAX + 50_000)),
    ),
    st.tuples(st.sampled_from(["fill", "drain"]), st.just(""), st.just(0)),
    st.tuples(
        st.just("rest"),
        st.just(""),
        st.sampled_from([0.01, 0.12, 0.5, 1.1, 4.0, SETTLED, SETTLED]),
    ),
    st.tuples(st.sampled_from(["stop", "start"]), st.just(""), st.just(0)),
)


async def play(script) -> None:
    directory = Path(tempfile.mkdtemp())
    try:
        async with trio.open_nursery() as nursery:
            world = World(directory, Recorder())

            async def start() -> None:
                if world.tail is None:
                    system = System(stat=world.stat)
                    world.tail = Tail(nursery, world.recorder, directory, system=system)

            await start()
            for action, name, size in script:
                if action == "rest":
                    await world.rest(size)
                elif action == "stop":
                    await world.stop()
                elif action == "start":
                    await start()
                else:
                    getattr(world, action)(name, size)
            world.drain("", 0)
            await start()
            await world.rest(2 * SETTLED)
            await world.stop()
            world.check()
    finally:
        shutil.rmtree(directory)


@examples(300, phases=PHASES)
@given(st.lists(steps, max_size=25))
@example([("create", "a", 400), ("rest", "", 0.5), ("truncate_late", "a", 4)])
@example([("create", "b", 0), ("rest", "", 0.01), ("rename", "b", 0), ("gzip", "a", 0)])
@example(
    [
        ("create", "b", 9),
        ("rest", "", 30.0),
        ("gzip", "b", 0),
        ("rest", "", 0.5),
        ("rename", "b.gz", 0),
    ]
)
def test_every_incarnation_is_read_once(script) -> None:
    trio.run(play, script, clock=MockClock(autojump_threshold=0))
