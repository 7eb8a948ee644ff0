"""Traces that grow on disk as their producers, and fate, make them grow; and what came of it.

    growth = Growth(tree(path), directory, seed, Style.TRUNCATED, second=tree(other), seen=seen)
    while growth.step():
        ...  # kill the collector, start it again
    assert what_was_followed == growth.expected()

Each step does one thing, the same for the same seed: it appends a slice (of 1 byte to 200 KiB, that
may end within a record, a line, a character, or where the file's size is a multiple of 4096),
rewrites a document, renames, truncates. Writers keep their files open, as producers do.

`Style` is what happens to the streams. Documents are known by name and behave alike in all styles:
`stream.json` is rewritten in place (empty, half, whole) while its stream grows and once more after
that; `clock-offsets.txt` and the map files of ET3 come after everything else.

Where bytes are destroyed before anybody need have read them, the growth first waits until `seen`
says that they were: what `expected` names can be demanded to the byte.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from random import Random

from tests.traffic.incarnation import Incarnation, Stream, Tree, write_all
from tests.traffic.pieces import BLOCK_BYTES, compressed, inflated, members, slices

SOURCE_MAX_BYTES = 16 * 2**20
HEAD_BYTES = 64
"""Number of first bytes by which a follower recognises a file at least."""

OVNI_HEADER = 8
_REWRITTEN = ("stream.json",)
_LATE = ("clock-offsets.txt", "*.list", "*_list")
_WAIT = "wait"

Actions = Iterator[str]
"""A part of the actions. It yields a word for each step, after the step was done."""


class Style(StrEnum):
    """Changes that may happen to the streams."""

    APPEND = "append"
    """The files grow. Compressed files grow as compressed ones."""
    MEMBERS = "members"
    """The files are written as gzip members of whole lines.

    Bytes of the newest member after its last 0x0a byte reach the disk only with the next member (DFTracer 2).
    """
    COMPRESSED = "compressed"
    """When X is complete, X.gz is written beside it, and then X is removed (DFTracer 1, `gzip -f`)."""
    RENAMED = "renamed"
    """Somewhere in between, the files get another name, and their writer continues."""
    DELETED = "deleted"
    """The files are removed at the end."""
    MOVED = "moved"
    """The files grow below `tmp`.

    Each complete directory is copied below `trace` in blocks, metadata first. Each file is removed when it is copied
    (ovni with OVNI_TMPDIR).
    """
    TRUNCATED = "truncated"
    """A second run truncates the files and writes them again (JETS, ET3)."""
    REUSED = "reused"
    """A second run overwrites the files in place, in one write except for the header.

    If the first run's file is longer, its end stays (ovni).
    """
    EXECUTED = "executed"
    """A second run continues in the same files (DFTracer, exec)."""
    EXECUTED_MEMBERS = "executed members"
    """The same in compressed files: the last member of the first run is never completed."""


_SECOND_RUN = {Style.TRUNCATED, Style.REUSED, Style.EXECUTED, Style.EXECUTED_MEMBERS}
_DESTROYING = {Style.DELETED, Style.TRUNCATED, Style.REUSED}
_MEMBERS = {Style.MEMBERS, Style.EXECUTED_MEMBERS}


class Growth:
    """The growth of one source's files below `target`.

    `source` is a file, a directory or a tree. `second` has the content that a second run writes, under the same names.
    `seen` returns whether a follower has read everything so far. `log` has what was done. Raise ValueError for a style
    that lacks what it needs.
    """

    def __init__(
        self,
        source: Path | Tree,
        target: Path,
        seed: int,
        style: Style,
        *,
        second: Path | Tree | None = None,
        seen: Callable[[Sequence[Incarnation]], bool] | None = None,
    ) -> None:
        if style in _SECOND_RUN and second is None:
            raise ValueError(f"{style}: there must be a second run")
        if style in _DESTROYING and seen is None:
            raise ValueError(f"{style}: bytes are destroyed; somebody must say that they were seen")
        self.log: list[str] = []
        self.done = False
        self._target = target
        self._style = style
        self._seen = seen
        self._waits = False
        self._random = Random(f"{style}/{seed}")
        self._streams: list[Stream] = []
        self._documents: dict[str, bytes] = {}
        self._runs = [_as_tree(source)] + ([] if second is None else [_as_tree(second)])
        self._actions = self._with_pauses(self._life())

    @property
    def waits(self) -> bool:
        """Whether no step is done before a follower has read everything so far."""
        return self._waits

    def step(self) -> bool:
        """Do one step. Return whether there are more. Nothing is done while the growth waits."""
        if self.done:
            return False
        if self._waits:
            assert self._seen is not None
            if not self._seen(self.written()):
                return True
            self._waits = False
        action = next(self._actions, None)
        if action is None:
            self.done = True
            return False
        self.log.append(action)
        self._waits = action == _WAIT
        return True

    def run(self, pause: Callable[[], object]) -> None:
        """Do all steps, with a pause after each."""
        while self.step():
            pause()

    def close(self) -> None:
        """End the growth in its current state, if it is not complete."""
        self._actions.close()
        self.done = True

    def written(self) -> list[Incarnation]:
        """Return the content that can be read by now, in the order in which the incarnations began."""
        return [stream.incarnation() for stream in self._streams]

    def expected(self) -> list[Incarnation]:
        """Return the content that could be read when everything is done."""
        assert self.done, "it is still growing"
        return self.written()

    def _with_pauses(self, actions: Actions) -> Iterator[str]:
        for action in actions:
            yield action
            if self._random.random() < 0.15:
                yield "pause"

    def _life(self) -> Actions:
        streams: dict[str, Stream] = {}
        try:
            for number, tree in enumerate(self._runs):
                if number and self._style in _DESTROYING:
                    yield _WAIT
                    self._documents = dict(self._documents)
                yield from self._run(tree, streams)
            if self._style is Style.DELETED:
                yield _WAIT
                for stream in streams.values():
                    stream.path.unlink()
                    yield f"delete {stream.names[-1]}"
        finally:
            for stream in self._streams:
                stream.close()

    def _run(self, tree: Tree, streams: dict[str, Stream]) -> Actions:
        """Make one run of all producers. `streams` has the newest incarnations by name."""
        late = [name for name in tree if _is(name, _LATE)]
        directories: dict[PurePosixPath, list[str]] = {}
        for name in tree:
            if name not in late:
                directories.setdefault(PurePosixPath(name).parent, []).append(name)
        yield from self._together(
            [self._directory(tree, names, streams) for names in directories.values()]
        )
        yield from self._together([self._rewrite(name, tree[name]) for name in late])

    def _directory(self, tree: Tree, names: list[str], streams: dict[str, Stream]) -> Actions:
        """Let the streams of one directory and their documents grow from begin to end."""
        documents = [name for name in names if _is(name, _REWRITTEN)]
        growing = []
        for name in names:
            if name in documents:
                continue
            old = streams.get(name)
            streams[name] = stream = self._begin(name, old)
            yield f"begin {stream.names[-1]}"
            growing.append(self._grow(name, stream, old, tree[name]))
        for name in documents:
            growing += [self._rewrite(name, data) for data in _early(tree[name])]
        yield from self._together(growing)
        for name in documents:
            yield from self._rewrite(name, tree[name])
        if self._style is Style.MOVED:
            yield from self._move(documents, [streams[name] for name in names if name in streams])

    def _begin(self, name: str, old: Stream | None) -> Stream:
        """Open a stream's file as its producer does."""
        if old is not None and self._style in {Style.EXECUTED, Style.EXECUTED_MEMBERS}:
            return old
        flags = 0
        if self._style is Style.TRUNCATED:
            flags = os.O_TRUNC
        elif self._style is not Style.REUSED:
            flags = os.O_APPEND
        if self._style is Style.COMPRESSED or self._style in _MEMBERS:
            name = name.removesuffix(".gz")
        if self._style in _MEMBERS:
            name += ".gz"
        if old is not None:
            old.close()
        root = "tmp/" if self._style is Style.MOVED else ""
        stream = Stream(self._target, root + name, flags, self._documents)
        if self._style is Style.MOVED:
            (self._target / "trace" / name).parent.mkdir(parents=True, exist_ok=True)
        self._streams.append(stream)
        return stream

    def _grow(self, name: str, stream: Stream, old: Stream | None, data: bytes) -> Actions:
        """Write a stream's bytes piece by piece. At its end, apply the change of the style."""
        if name.endswith(".gz") and (self._style is Style.COMPRESSED or self._style in _MEMBERS):
            data = inflated(data)
        pieces = list(self._pieces(name, stream, old, data))
        rename_at = self._random.randrange(len(pieces) + 1)
        for number, piece in enumerate(pieces):
            if self._style is Style.RENAMED and number == rename_at:
                yield stream.rename()
            stream.write(piece)
            yield f"append {len(piece)} to {stream.names[-1]}"
            if number == 0 and old is not None and self._must_be_noticed(old, data):
                yield _WAIT
        if self._style is Style.RENAMED and len(stream.names) == 1:
            yield stream.rename()
        stream.close()
        if self._style is Style.COMPRESSED:
            yield from self._compress(stream)

    def _pieces(
        self, name: str, stream: Stream, old: Stream | None, data: bytes
    ) -> Iterator[bytes]:
        if self._style in _MEMBERS:
            torn = self._style is Style.EXECUTED_MEMBERS and stream is not old
            return members(self._random, data, torn=torn)
        if old is not None and self._style is Style.REUSED:
            if data[:HEAD_BYTES] == old.raw[: len(data[:HEAD_BYTES])]:
                raise ValueError(f"{name}: the second run begins as the first did")
            stream.keep(old)
            return iter((data[:OVNI_HEADER], data[OVNI_HEADER:]))
        first = 0
        if name.endswith(".obs"):
            first = OVNI_HEADER
        elif old is not None and self._must_be_noticed(old, data):
            first = min(len(old.raw), len(data)) // 2
        return slices(self._random, data, first)

    def _must_be_noticed(self, old: Stream, data: bytes) -> bool:
        """Return whether a second run looks like the first one after it has grown, once it is longer."""
        head = bytes(old.raw[:HEAD_BYTES])
        return self._style is Style.TRUNCATED and data.startswith(head)

    def _compress(self, stream: Stream) -> Actions:
        name = stream.names[-1] + ".gz"
        data = compressed(bytes(stream.raw))
        copy = os.open(self._target / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            for piece in slices(self._random, data):
                write_all(copy, piece)
                yield f"append {len(piece)} to {name}"
        finally:
            os.close(copy)
        stream.path.unlink()
        stream.names.append(name)
        yield f"compressed {name}"

    def _move(self, documents: list[str], streams: list[Stream]) -> Actions:
        """Copy a complete directory to its final place, documents first."""
        names = documents + [stream.names[0].removeprefix("tmp/") for stream in streams]
        for name in names:
            data = (self._target / "tmp" / name).read_bytes()
            final = self._target / "trace" / name
            with final.open("wb", buffering=0) as copy:
                while copy.tell() < len(data):
                    at = copy.tell()
                    copy.write(data[at : at + BLOCK_BYTES * self._random.randint(1, 16)])
                    yield f"copied to {copy.tell()} trace/{name}"
            (self._target / "tmp" / name).unlink()
            yield f"delete tmp/{name}"
        for stream in streams:
            stream.names.append("trace/" + stream.names[0].removeprefix("tmp/"))
        for name in documents:
            self._documents["trace/" + name] = self._documents.pop("tmp/" + name)
        emptied = self._target / "tmp" / names[0]
        with suppress(OSError):  # Another stream is below this directory.
            while emptied.parent != self._target:
                emptied = emptied.parent
                emptied.rmdir()
        yield "moved"

    def _rewrite(self, name: str, data: bytes) -> Actions:
        """Write a document in place: first it is empty, then half of it is there, then all."""
        if self._style is Style.MOVED:
            name = ("trace/" if _is(name, _LATE) else "tmp/") + name
        path = self._target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb", buffering=0) as file:
            yield f"empty {name}"
            half = self._random.randrange(len(data) + 1)
            file.write(data[:half])
            yield f"{half} bytes of {name}"
            file.write(data[half:])
        self._documents[name] = data
        yield f"whole {name}"

    def _together(self, parts: list[Actions]) -> Actions:
        """Do the steps of all parts in random order."""
        parts = list(parts)
        while parts:
            part = self._random.choice(parts)
            action = next(part, None)
            if action is None:
                parts.remove(part)
            else:
                yield action


def tree(path: Path) -> dict[str, bytes]:
    """Return the content of a file, or of all files of a directory. Raise ValueError if one is too large."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    root = path.parent if path.is_file() else path
    for file in files:
        if file.stat().st_size > SOURCE_MAX_BYTES:
            raise ValueError(f"{file} is too large to grow")
    return {file.relative_to(root).as_posix(): file.read_bytes() for file in files}


def _as_tree(source: Path | Tree) -> Tree:
    return tree(source) if isinstance(source, Path) else source


def _is(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(PurePosixPath(name).name, pattern) for pattern in patterns)


def _early(document: bytes) -> list[bytes]:
    """Return what libovni has written to stream.json before it writes the whole of it."""
    try:
        whole = json.loads(document)
        known = {key: whole["ovni"][key] for key in ("lib", "part", "tid", "pid", "loom", "app_id")}
    except (ValueError, KeyError, TypeError):
        return []
    first = {"version": whole["version"], "ovni": known}
    return [json.dumps(first, indent=4).encode()]


def may_join(data: bytes) -> bool:
    """Return whether a trace of DFTracer has a part of a run and the PID that all vectors share.

    Such parts of different vectors look like pieces of one run, so the order in which they arrive decides which of them
    are joined.
    """
    known = b'"dftracer"' in data
    ids = {int(number) for number in re.findall(rb'"id" ?: ?"?([0-9]{1,9})\b', data)}
    complete = ids == set(range(1, len(ids) + 1))  # Other parts may have what this one lacks.
    whole = known and complete and re.search(rb'"start"', data) and re.search(rb'"end"', data)
    return not whole and re.search(rb'"pid" ?: ?"?[0-9]{1,2}\b', data) is not None
