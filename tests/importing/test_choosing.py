"""Whatever happens to files between imports: each record that was ever there is shown once.

The oracle knows no rule of the collector's. It keeps a set of the records that it has written: each
is unlike all others, and a copy is made only of a file that exists. So a record twice, or none at
all, is a mistake, whichever files an import takes.

It leaves out the blind spots of ARCHITECTURE.md: an incomplete copy goes when its original does, and
what has moved has no copies.
"""

from __future__ import annotations

import errno
import gzip
import json
import os
import random
import shutil
import sys
import tracemalloc
from collections import Counter

import pytest
from click.testing import CliRunner
from zlib_ng.zlib_ng import crc32

from tailrace.cli.commands import tailrace
from tailrace.importing import choosing, pieces
from tailrace.importing.choosing import choose
from tailrace.importing.readings import AsRead, Reading
from tailrace.sources.tail.content import LINE_MAX, fingerprint, lines
from tests.query.asking import ask

SHOWN = "SELECT id FROM events WHERE kind IN ('begin', 'span')"
STEPS = 9


class Directory:
    """Trace files, to which things happen; `written` are the ids of all records so far."""

    def __init__(self, path, seed):
        self.path = path
        self.path.mkdir()
        self.written = set()
        self._chance = random.Random(seed)
        self._next = 1

    def happen(self):
        """One thing, at random, that is possible now."""
        files = sorted(self.path.glob("*.jets"))
        things = [self.begin] + [self.grow, self.begin_again, self.compress, self.move] * bool(
            files
        )
        thing = self._chance.choice(things)
        return thing.__name__, thing(*([self._chance.choice(files)] if thing != self.begin else []))

    def begin(self):
        (self.path / f"{self._next}.jets").write_bytes(self._header() + self._records())

    def grow(self, file):
        with file.open("ab") as more:
            more.write(self._records())

    def begin_again(self, file):
        self._lose_incomplete_copy(file)
        with file.open("r+b") as same:
            same.truncate()
            same.write(self._header() + self._records())

    def compress(self, file):
        """As gzip does it, or with the original kept, or of its beginning alone."""
        data = file.read_bytes()
        if file.name.startswith("moved"):
            return
        how = self._chance.choice(["moved", "kept", "torn"])
        if how == "torn":
            data = data[: data.rindex(b"\n", 0, -1) + 1]
        _copy(file).write_bytes(gzip.compress(data))
        if how == "moved":
            file.unlink()

    def move(self, file):
        _copy(file).unlink(missing_ok=True)
        file.rename(self.path / f"moved-{self._next}-{file.name}")

    def _lose_incomplete_copy(self, file):
        if _copy(file).exists() and gzip.decompress(_copy(file).read_bytes()) != file.read_bytes():
            _copy(file).unlink()

    def _header(self):
        return b'{"type":"header","version":"2.0","metadata":{}}\n'

    def _records(self):
        ids = range(self._next, self._next + self._chance.choice([1, 2, 7]))
        self._next = ids.stop
        self.written.update(ids)
        return b"".join(
            b'{"clk":1,"type":"record","name":"r","record_type":"R","id":%d,"description":""}\n' % n
            for n in ids
        )


def _copy(file):
    return file.with_name(file.name + ".gz")


def imported(store, path):
    done = CliRunner().invoke(tailrace, ["import", "--store", str(store), str(path)])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 20))]
)
def test_each_record_is_shown_once_whatever_happens_between_imports(seed, tmp_path):
    store, directory = tmp_path / "store", Directory(tmp_path / "runs", seed)
    directory.begin()
    happened = []
    for _ in range(STEPS):
        said = imported(store, directory.path)
        shown = Counter(id_ for (id_,) in ask(store, SHOWN))
        assert shown == Counter(directory.written), (happened, said)
        happened.append(directory.happen())
    rows = ask(store, "SELECT count(*) FROM stored")
    imported(store, directory.path)
    again = ask(store, "SELECT count(*) FROM stored")
    assert "nothing to import" in imported(store, directory.path)
    assert ask(store, "SELECT count(*) FROM stored") == again >= rows


@pytest.mark.parametrize(("size", "chosen"), [(9, "left out"), (8, "grown"), (10, "new")])
def test_of_what_an_earlier_version_has_read_the_size_must_do(size, chosen, tmp_path):
    file = tmp_path / "a.jets"
    file.write_bytes(b"9 bytes \n")
    read = AsRead(str(file), file.stat().st_ino, size)
    reading = Reading("import", "jets", "s", read, closed=True)
    choice = choose({"jets": [str(file)]}, [reading], again=False)
    assert [left.why for left in choice.left_out] == (["imported"] if chosen == "left out" else [])
    assert [taken.replaces for taken in choice.taken] == {
        "left out": [], "grown": [("s",)], "new": [()],
    }[chosen]  # fmt: skip
    again = choose({"jets": [str(file)]}, [reading], again=True)
    assert (again.left_out, [taken.replaces for taken in again.taken]) == ([], [()])


def test_a_copy_of_a_shorter_state_elsewhere_is_another_trace_unless_it_says_enough(tmp_path):
    """ovni streams of one thread id in two directories: 8 bytes of header are alike in all."""
    header, events = b"ovni\1\0\0\0", b"\0OHe" + bytes(8)
    for trace, content in {"a": header + events, "b": header + events + events}.items():
        stream = tmp_path / trace / "loom.l/proc.1/thread.1/stream.obs"
        stream.parent.mkdir(parents=True)
        stream.write_bytes(content)
    said = imported(tmp_path / "store", tmp_path)
    assert "a copy of" not in said
    shutil.rmtree(tmp_path / "store")
    for trace, count in {"a": 30, "b": 40}.items():
        stream = tmp_path / trace / "loom.l/proc.1/thread.1/stream.obs"
        stream.write_bytes(header + count * events)
    said = imported(tmp_path / "store", tmp_path)
    assert "is a copy of another file, or of a part of others" in said


def dftracer(*ids):
    line = (
        '{"id":%d,"name":"read","cat":"POSIX","pid":1,"tid":1,"ts":%d,"dur":1,"ph":"X","args":{}}\n'
    )
    return "".join(line % (n, n) for n in ids).encode()


@pytest.mark.parametrize(("failing", "copies"), [("split/a.pfw", 0), ("b.pfw", 1), ("a.pfw", 0)])
def test_a_piece_that_fails_half_way_is_no_copy(failing, copies, tmp_path, monkeypatch):
    """As on a network file system. Nobody knows what else such a piece has, and its reader reports the error."""
    original, other, piece = (tmp_path / name for name in ("a.pfw", "b.pfw", "split/a.pfw"))
    piece.parent.mkdir()
    whole = dftracer(*range(20_000))
    piece.write_bytes(whole if failing == "a.pfw" else whole + dftracer(20_001))
    original.write_bytes(whole)
    other.write_bytes(dftracer(*range(20_001, 50_000)))
    if failing == "split/a.pfw":
        other.write_bytes(dftracer(*range(30_000, 50_000)))
    inode, pread = os.stat(tmp_path / failing).st_ino, os.pread  # noqa: PTH116 - as the collector
    failed = []

    def stumbling(fd, size, offset):
        if os.fstat(fd).st_ino == inode and offset > 500_000:
            failed.append(fd)
            raise OSError(errno.EIO, "no")
        return pread(fd, size, offset)

    monkeypatch.setattr(os, "pread", stumbling)
    files = list(map(str, (original, other, piece)))
    choice = choose({"dftracer": files}, [], again=False)
    assert failed
    assert [left.path for left in choice.left_out] == [str(piece)] * copies
    assert {taken.path for taken in choice.taken} == set(files[: 3 - copies])


MERGED = dftracer(0, 1, 2, 10, 11, 12, 20, 21, 22)


@pytest.mark.parametrize(
    ("name", "content", "copy", "of"),
    [
        ("merged.pfw", MERGED, "merged.pfw", "0.pfw"),
        ("merged.pfw.gz", gzip.compress(MERGED), "merged.pfw.gz", "0.pfw"),
        ("compact.pfw", dftracer(10, 11, 12).rstrip(), "compact.pfw", "1.pfw"),
        ("more.pfw", dftracer(10, 11, 12, 99), "1.pfw", "more.pfw"),
    ],
)
def test_a_merged_or_supplemented_copy_is_one_whatever_its_name(tmp_path, name, content, copy, of):
    for part in range(3):
        ids = range(10 * part, 10 * part + 3)
        (tmp_path / f"{part}.pfw").write_bytes(dftracer(*ids))
    (tmp_path / name).write_bytes(content)
    taken, left_out = chosen(tmp_path, format_="dftracer")
    assert left_out == {copy: of}
    assert set(taken) == {"0.pfw", "1.pfw", "2.pfw", name} - {copy}


@pytest.mark.parametrize(
    ("files", "copies"),
    [
        ({"a": [0, 1], "b": [0, 1], "c": [0, 1], "d": [0, 1]}, {"b": "a", "c": "a", "d": "a"}),
        ({"0": [0], "1": [10], "m": [0, 10], "n": [0, 10]}, {"m": "0", "n": "0"}),
        ({"0": [0], "1": [10], "2": [20], "m": [0, 10], "n": [0, 10, 20]}, {"m": "0", "n": "0"}),
        ({"0": [0], "0x": [0, 1], "1": [10], "m": [0, 1, 10]}, {"0": "0x", "m": "0x"}),
    ],
    ids=["equal", "merged twice", "merged in steps", "merged from a supplemented one"],
)
def test_of_several_copies_each_names_a_file_that_is_read(tmp_path, files, copies):
    for name, ids in files.items():
        (tmp_path / name).write_bytes(dftracer(*ids))
    taken, left_out = chosen(tmp_path, format_="dftracer")
    assert left_out == copies
    assert set(taken) == files.keys() - copies.keys()


@pytest.mark.parametrize("damage", ["member", "hole"])
def test_a_file_that_lost_what_no_other_has_is_no_copy(tmp_path, damage):
    """Two runs of a program in a container begin with the same record: it has no time."""
    first = dftracer(0).rstrip().ljust(4095) + b"\n"
    if damage == "member":
        cut = gzip.compress(dftracer(*range(5)))[:12]
        (tmp_path / "run1").write_bytes(gzip.compress(first) + cut)
    else:
        (tmp_path / "run1").write_bytes(first)
        os.truncate(tmp_path / "run1", 2**20)
    (tmp_path / "run2").write_bytes(first + dftracer(7, 8))
    assert chosen(tmp_path, format_="dftracer")[1] == {}


def test_a_merged_file_with_a_line_of_its_own_is_read(tmp_path):
    (tmp_path / "0.pfw").write_bytes(dftracer(0, 1, 2))
    (tmp_path / "merged.pfw").write_bytes(dftracer(0, 1, 3))
    assert chosen(tmp_path, format_="dftracer")[1] == {}


@pytest.mark.parametrize("first", ["plain", "one", "many"])
def test_a_compressed_copy_is_one_however_many_members_it_has(first, tmp_path):
    """Such as `dftracer` writes: the sizes at the ends of its members are those of parts."""
    lines = dftracer(*range(300)).splitlines(keepends=True)
    parts = [b"".join(lines[at : at + 40]) for at in range(0, 300, 40)]
    for name, data in {
        "plain/a.pfw": b"".join(lines),
        "one/b.pfw.gz": gzip.compress(b"".join(lines)),
        "many/c.pfw.gz": b"".join(map(gzip.compress, parts)),
    }.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(data)
    files = [str(path) for path in sorted(tmp_path.glob("*/*.pfw*"))]
    choice = choose({"dftracer": files}, [], again=False)
    assert (len(choice.taken), [left.why for left in choice.left_out]) == (1, ["copy", "copy"])
    store = tmp_path / "store"
    imported(store, tmp_path / first)
    rows = ask(store, "SELECT count(*) FROM stored")
    for other in ("plain", "one", "many"):
        assert "nothing to import" in imported(store, tmp_path / other)
    assert ask(store, "SELECT count(*) FROM stored") == rows


def steps(work):
    """How many lines of Python a call takes."""
    count, before = 0, sys.gettrace()

    def trace(*_):
        nonlocal count
        count += 1
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("readings_too", [False, True])
def test_twice_as_many_files_of_one_size_take_twice_as_many_steps(readings_too, tmp_path):
    files, readings = [], []
    for number in range(400):
        file = tmp_path / f"{number}.jets"
        file.write_bytes(b"%03d" % number * 3)
        known = fingerprint(str(file))
        read = AsRead(f"/elsewhere/{number}.jets", 0, known.size, 0, known.crc)
        files.append(str(file))
        readings += [Reading("import", "jets", f"s{number}", read, closed=True)] * readings_too
    choices = []

    def work(count):
        choices.append(choose({"jets": files[:count]}, readings[:count], again=False))

    assert steps(lambda: work(400)) < 2.5 * steps(lambda: work(200))
    assert [len(choice.left_out) for choice in choices] == [400 * readings_too, 200 * readings_too]


@pytest.mark.parametrize("readings_too", [False, True])
def test_twice_as_many_files_that_begin_alike_take_twice_as_many_steps(readings_too, tmp_path):
    """Each has the name of a copy of the first, and the same first bytes."""
    files, readings = [], []
    for number in range(200):
        file = tmp_path / ("a.jets" + f".{number}" * (number > 0))
        file.write_bytes(WHOLE + b"%04d" % number * (number + 1))
        known = fingerprint(str(file))
        read = AsRead(f"/elsewhere/{file.name}", 0, known.size, 0, known.crc + 1)
        files.append(str(file))
        readings += [Reading("import", "jets", f"s{number}", read, closed=True)] * readings_too
    taken = []

    def work(count):
        taken.append(len(choose({"jets": files[:count]}, readings[:count], again=False).taken))

    assert steps(lambda: work(200)) < 2.5 * steps(lambda: work(100))
    assert taken == [200, 100]


def test_twice_as_many_equal_files_beside_other_documents_take_twice_as_many_steps(tmp_path):
    """As those of threads that wrote nothing."""
    files = []
    for number in range(200):
        directory = tmp_path / f"loom.n/proc.{number}/thread.1"
        directory.mkdir(parents=True)
        (directory / "stream.json").write_text(json.dumps({"version": number}))
        (directory / "stream.obs").write_bytes(b"ovni\1\0\0\0")
        files.append(str(directory / "stream.obs"))
    taken = []

    def work(count):
        taken.append(len(choose({"ovni": files[:count]}, [], again=False).taken))

    assert steps(lambda: work(200)) < 2.5 * steps(lambda: work(100))
    assert taken == [200, 100]


def test_lines_of_pieces_are_compared_up_to_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "LINES_MAX", 5)
    (tmp_path / "split").mkdir()
    files = [tmp_path / name for name in ("a.pfw", "split/a.pfw", "split/b.pfw", "split/c.pfw")]
    for file, ids in zip(files, (range(9), range(4), range(2, 8), range(1, 3)), strict=True):
        file.write_bytes(dftracer(*ids))
    choice = choose({"dftracer": list(map(str, files))}, [], again=False)
    assert [left.path for left in choice.left_out] == [str(files[1]), str(files[3])]


def test_a_file_without_newlines_is_read_in_parts(tmp_path):
    file = tmp_path / "a"
    with file.open("wb") as long:
        long.writelines([b"x" * LINE_MAX] * 20 + [b"\n" + b"y" * LINE_MAX + b"\n"])
    tracemalloc.start()
    try:
        sizes = [len(line) for line in lines(str(file))]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sizes == [LINE_MAX] * 21 + [0]
    assert peak < 8 * LINE_MAX


HEADER = b'{"type":"header","version":"2.0","metadata":{}}\n'
LINE = b'{"type":"record","name":"n","record_type":"t","id":%d,"parent_id":null,"clk":1}\n'
WHOLE = HEADER + b"".join(LINE % n for n in range(40))
BEGUN = WHOLE[: WHOLE.index(LINE % 9)]
LEFT_BESIDE = [
    "a.jets~", "#a.jets#", ".a.jets.Xy12Zw", "a.jets.part", "a.jets.bak", "a (copy).jets",
    "a - Copy (2).jets", "Copy of a.jets", "a.jets.1", "a.jets-20261128", "a_old.jets",
    "a (1).jets.gz", "a.jets.2.gz", "a (copy).jets.bak", "a.jets-2026112814.gz",
    "a.jets-20261128-1795874400", "a.jets.2026-11-28", "a.jets.2026-11-28_14-00",
]  # fmt: skip


@pytest.mark.parametrize("name", LEFT_BESIDE)
@pytest.mark.parametrize("data", [WHOLE, BEGUN], ids=["whole", "begun"])
def test_what_is_left_beside_a_trace_under_a_name_made_of_its_own_is_a_copy(tmp_path, name, data):
    (tmp_path / "a.jets").write_bytes(WHOLE)
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    taken, left_out = chosen(tmp_path)
    assert taken == {"a.jets": ()}
    assert left_out == {name: "a.jets"}


@pytest.mark.parametrize("name", ["b.jets", "a_1.jets", "a-2.jets", "b/a.jets~"])
def test_a_trace_with_a_name_or_a_directory_of_its_own_may_begin_like_another(tmp_path, name):
    (tmp_path / "a.jets").write_bytes(WHOLE)
    (tmp_path / "b").mkdir()
    (tmp_path / name).write_bytes(BEGUN)
    assert chosen(tmp_path)[0] == {"a.jets": (), name: ()}


@pytest.mark.parametrize("name", LEFT_BESIDE)
def test_a_trace_that_only_begins_like_the_one_whose_name_its_own_is_made_of_is_one(tmp_path, name):
    (tmp_path / "a.jets").write_bytes(WHOLE)
    data = BEGUN + LINE % 77
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert chosen(tmp_path)[0] == {"a.jets": (), name: ()}


@pytest.mark.parametrize("name", LEFT_BESIDE)
def test_the_trace_that_a_copy_was_the_beginning_of_replaces_its_session(tmp_path, name):
    (tmp_path / "a.jets").write_bytes(WHOLE)
    known = fingerprint(str(_with(tmp_path / "a.jets.tmp", BEGUN)))
    (tmp_path / "a.jets.tmp").unlink()
    read = AsRead(str(tmp_path / name), 1, known.size, 1, known.crc)
    readings = [Reading("files", "jets", "s", read, closed=True)]
    assert chosen(tmp_path, readings)[0] == {"a.jets": ("s",)}


@pytest.mark.parametrize("first", ["a", "b"])
def test_a_file_that_was_imported_beside_its_copy_names_its_own_session(tmp_path, first):
    """In whichever order the table gives the sessions: `--again` has read the same content twice."""
    known = fingerprint(str(_with(tmp_path / "b.jets", WHOLE)))
    readings = [
        Reading("import", "jets", name, AsRead(path, 1, known.size, 1, known.crc), closed=True)
        for name, path in (("a", "/elsewhere/a.jets"), ("b", str(tmp_path / "b.jets")))
    ]
    readings.sort(key=lambda reading: reading.session != first)
    choice = choose({"jets": [str(tmp_path / "b.jets")]}, readings, again=False)
    assert [(left.of, left.sessions) for left in choice.left_out] == [("", ("b",))]


@pytest.mark.parametrize("data", [HEADER, HEADER[:2]], ids=["header", "bytes"])
@pytest.mark.parametrize("name", LEFT_BESIDE)
def test_a_trace_that_says_little_is_no_copy_by_its_name(tmp_path, name, data):
    """Two processes, of which one died after its header."""
    (tmp_path / "a.jets").write_bytes(WHOLE)
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert chosen(tmp_path)[0] == {"a.jets": (), name: ()}
    read = AsRead(str(tmp_path / name), 1, len(data), 1, crc32(data))
    (tmp_path / name).unlink()
    readings = [Reading("files", "jets", "s", read, closed=True)]
    assert chosen(tmp_path, readings)[0] == {"a.jets": ()}


def test_files_of_one_name_and_a_number_are_not_all_compared_with_each_other(tmp_path, monkeypatch):
    """Such as those of ranks, of processes and of log rotations."""
    sizes = []

    def counted(file, of):
        sizes.append(len(set(of)))
        return fingerprint(file, of)

    monkeypatch.setattr(choosing, "fingerprint", counted)
    (tmp_path / "a.jets").write_bytes(WHOLE)
    (tmp_path / "a.jets.gz").write_bytes(gzip.compress(WHOLE + LINE % 99))
    (tmp_path / "a.jets.300").write_bytes(BEGUN)
    for number in range(200):
        lines = b"".join(LINE % n for n in range(number, 2 * number + 5))
        (tmp_path / f"a.jets.{number}").write_bytes(HEADER + lines if number else BEGUN + LINE % 77)
    taken, left_out = chosen(tmp_path)
    assert left_out.keys() == {"a.jets", "a.jets.300"}
    assert len(taken) == 201
    assert sum(sizes) < 100


def _with(path, data):
    path.write_bytes(data)
    return path


def chosen(directory, readings=(), format_="jets"):
    """The files that an import takes, each with what it replaces; and those that it leaves out, each with its original."""
    files = sorted(str(file) for file in directory.rglob("*") if file.is_file())
    choice = choose({format_: files}, readings, again=False)
    below = len(str(directory)) + 1
    taken = {file.path[below:]: file.replaces for file in choice.taken}
    return taken, {file.path[below:]: file.of[below:] for file in choice.left_out}
