from __future__ import annotations

import gzip
import json
import os
import zlib
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from tests.traffic.grow import Growth, Style, tree
from tests.traffic.pieces import BLOCK_BYTES, inflated

SECOND_RUN = {Style.TRUNCATED, Style.REUSED, Style.EXECUTED, Style.EXECUTED_MEMBERS}
DOCUMENTS = {"stream.json", "clock-offsets.txt", "methods.list"}
THREADS = ("loom.a/proc.1/thread.1", "loom.a/proc.1/thread.2", "loom.b/proc.7/thread.9")


def lines(seed, size):
    random = Random(seed)
    text = "".join(
        f"{random.randrange(10**9)} räumlich überall {'é' * random.randrange(9)}\n"
        for _ in range(size)
    )
    return text.encode()


def metadata(thread, *, finished=1):
    loom, pid, tid = thread.split("/")
    whole = {"lib": {"version": "1.14.0"}, "part": "thread", "app_id": 1, "loom": loom[5:]}
    whole |= {"pid": int(pid[5:]), "tid": int(tid[7:]), "require": {}, "finished": finished}
    return json.dumps({"version": 3, "ovni": whole}).encode()


def ovni(seed, size=30_000):
    """Shaped as an ovni trace; what is in the streams does not matter, but that no two runs' begin
    alike: nobody could tell those apart."""
    random = Random(seed)
    files = {"clock-offsets.txt": b"rank hostname\n0 a 0 0 0\n"}
    for thread in THREADS:
        body = random.randbytes(random.randrange(8, size))
        files[f"{thread}/stream.obs"] = b"ovni\1\0\0\0" + body
        files[f"{thread}/stream.json"] = metadata(thread)
    return files


def run_of(style, seed):
    """A run that the style may happen to; a later seed's runs are shorter."""
    if style in {Style.REUSED, Style.MOVED}:
        return ovni(seed, 30_000 // (seed % 5 + 1))
    size = 1200 // (seed % 5 + 1)
    return {
        "trace": lines(seed, size),
        "b/t.pfw": lines(-seed, size // 2),
        "methods.list": b"a,1\n",
    }


class Follower:
    """Whoever follows a tree as well as can be done by looking at it now and then."""

    def __init__(self, root):
        self.root = root
        self.files = {}
        self.incarnations = []
        self.documents = {}

    def look(self):
        for path in sorted(p for p in self.root.rglob("*") if p.is_file()):
            name = path.relative_to(self.root).as_posix()
            if path.name in DOCUMENTS:
                self.documents[name] = path.read_bytes()
            elif path.stat().st_ino not in self.files:
                self.files[path.stat().st_ino] = (path.open("rb"), name)
        for inode, (file, name) in self.files.items():
            now = os.pread(file.fileno(), 2**24, 0)
            own = [place for place, (of, *_) in enumerate(self.incarnations) if of == inode]
            if own and now.startswith(self.incarnations[own[-1]][2]):
                self.incarnations[own[-1]] = (inode, name, now)
            else:
                self.incarnations.append((inode, name, now))

    def contents(self):
        """Return what it has read; of a file and its copy, the longer."""
        found = []
        for inode, name, data in self.incarnations:
            kept = name.removeprefix("tmp/").removeprefix("trace/").removesuffix(".gz")
            plain = inflated(data) if name.endswith(".gz") else data
            for place, (of, other, content) in enumerate(found):
                alike = plain.startswith(content) or content.startswith(plain)
                if of != inode and other == kept and alike:
                    found[place] = (of, other, max(content, plain, key=len))
                    break
            else:
                found.append((inode, kept, plain))
        return [plain for *_, plain in found]

    def saw(self, incarnations):
        self.look()
        found = self.contents()
        return all(incarnation.data in found for incarnation in incarnations)

    def close(self):
        for file, _ in self.files.values():
            file.close()


def grown(directory, style, seed=1):
    second = run_of(style, seed + 1) if style in SECOND_RUN else None
    growth = Growth(run_of(style, seed), directory, seed, style, second=second, seen=lambda _: True)
    growth.run(lambda: None)
    return growth


@pytest.mark.parametrize("style", Style)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**16))
def test_one_who_looks_now_and_then_has_seen_exactly_what_is_expected(
    tmp_path_factory, style, seed
):
    directory = tmp_path_factory.mktemp("grow")
    first, second = run_of(style, seed), run_of(style, seed + 1)
    follower = Follower(directory)
    growth = Growth(
        first,
        directory,
        seed,
        style,
        second=second if style in SECOND_RUN else None,
        seen=follower.saw,
    )
    random = Random(seed)
    while growth.step():
        if random.random() < 0.3:
            follower.look()
    follower.look()
    follower.close()
    expected = growth.expected()
    assert sorted(follower.contents()) == sorted(incarnation.data for incarnation in expected)
    assert follower.documents.items() >= expected[-1].documents.items()


@pytest.mark.parametrize("style", sorted(set(Style) - SECOND_RUN - {Style.DELETED}))
def test_what_is_expected_is_the_source_and_what_is_on_disk(tmp_path, style):
    growth = grown(tmp_path, style)
    source = run_of(style, 1)
    streams = {name: data for name, data in source.items() if name.split("/")[-1] not in DOCUMENTS}
    assert sorted(i.data for i in growth.expected()) == sorted(streams.values())
    for incarnation in growth.expected():
        path = tmp_path / incarnation.names[-1]
        data = path.read_bytes()
        assert incarnation.data == (gzip.decompress(data) if path.suffix == ".gz" else data)
        assert incarnation.stale == 0
        assert {p.name for p in path.parent.iterdir()} <= {path.name, "b", *DOCUMENTS}
        for name, document in incarnation.documents.items():
            assert (tmp_path / name).read_bytes() == document
            assert source[name.removeprefix("trace/")] == document
        assert len(incarnation.documents) == len(source) - len(streams)


def test_a_second_run_truncates_and_both_are_expected(tmp_path):
    growth = grown(tmp_path, Style.TRUNCATED)
    runs = run_of(Style.TRUNCATED, 1), run_of(Style.TRUNCATED, 2)
    for name in ("trace", "b/t.pfw"):
        found = [i.data for i in growth.expected() if i.names == (name,)]
        assert found == [run[name] for run in runs]
        assert (tmp_path / name).read_bytes() == runs[1][name]


def test_what_a_shorter_second_run_leaves_of_the_first_is_told(tmp_path):
    first, second = ovni(1), {name: data[:300] for name, data in ovni(2).items()}
    growth = Growth(first, tmp_path, 1, Style.REUSED, second=second, seen=lambda _: True)
    growth.run(lambda: None)
    for thread in THREADS:
        name = f"{thread}/stream.obs"
        old, new = (i for i in growth.expected() if i.names == (name,))
        assert old.data == first[name]
        assert new.data == second[name] + first[name][300:]
        assert (old.stale, new.stale) == (0, len(first[name]) - 300)
        assert (tmp_path / name).read_bytes() == new.data


def test_a_second_program_goes_on_in_the_same_file(tmp_path):
    growth = grown(tmp_path, Style.EXECUTED)
    runs = run_of(Style.EXECUTED, 1), run_of(Style.EXECUTED, 2)
    assert {i.names: i.data for i in growth.expected()} == {
        (name,): runs[0][name] + runs[1][name] for name in ("trace", "b/t.pfw")
    }


def test_of_a_member_that_was_never_finished_its_beginning_is_expected(tmp_path):
    growth = grown(tmp_path, Style.EXECUTED_MEMBERS)
    runs = run_of(Style.EXECUTED_MEMBERS, 1), run_of(Style.EXECUTED_MEMBERS, 2)
    for incarnation in growth.expected():
        (name,) = incarnation.names
        first, second = (run[name.removesuffix(".gz")] for run in runs)
        assert incarnation.data.endswith(second)
        begun = incarnation.data.removesuffix(second)
        assert first.startswith(begun)
        assert len(begun) < len(first)
        with pytest.raises((gzip.BadGzipFile, zlib.error)):
            gzip.decompress((tmp_path / name).read_bytes())


def test_deleted_files_are_gone_and_their_documents_are_not(tmp_path):
    growth = grown(tmp_path, Style.DELETED)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["methods.list"]
    assert len(growth.expected()) == 2


@pytest.mark.parametrize("style", [Style.DELETED, Style.TRUNCATED, Style.REUSED])
def test_nothing_is_destroyed_before_it_was_seen(tmp_path, style):
    answers = iter([False] * 5 + [True] * 5)
    asked = []

    def seen(incarnations):
        asked.append([incarnation.data for incarnation in incarnations])
        return next(answers)

    first = run_of(style, 1)
    growth = Growth(first, tmp_path, 3, style, second=run_of(style, 2), seen=seen)
    while len(asked) < 5:
        assert growth.step()
    done = list(growth.log)
    assert done[-1] == "wait"
    for name, data in first.items():
        assert (tmp_path / name).read_bytes() == data
        if name.split("/")[-1] not in DOCUMENTS:
            assert data in asked[-1]
    growth.run(lambda: None)
    assert growth.log[: len(done)] == done
    assert len(growth.log) > len(done)
    soon = Growth(first, tmp_path / "2", 3, style, second=run_of(style, 2), seen=lambda _: True)
    soon.run(lambda: None)
    assert soon.log == growth.log


def test_a_second_run_that_begins_like_the_first_is_noticed_while_it_is_shorter(tmp_path):
    source = {"trace": lines(1, 900)}
    sizes = []

    def seen(incarnations):
        sizes.append([len(incarnation.data) for incarnation in incarnations])
        return True

    Growth(source, tmp_path, 1, Style.TRUNCATED, second=source, seen=seen).run(lambda: None)
    whole = len(source["trace"])
    assert sizes == [[whole], [whole, whole // 2]]


@pytest.mark.parametrize("style", Style)
def test_a_seed_is_a_growth(tmp_path, style):
    seeds = 1, 1, 2, 3
    logs = [grown(tmp_path / str(n), style, seed).log for n, seed in enumerate(seeds)]
    assert logs[0] == logs[1] != logs[2]
    assert any("pause" in log for log in logs)


def test_slices_end_anywhere(tmp_path):
    ends = []
    source = {"trace": lines(1, 6000)}
    for seed in range(8):
        growth = Growth(source, tmp_path / str(seed), seed, Style.APPEND)
        at = 0
        while growth.step():
            size = (tmp_path / str(seed) / "trace").stat().st_size
            assert size - at <= 200 * 2**10
            if size > at:
                ends.append((size - at, size))
            at = size
    data = source["trace"]
    ends = [(size, end) for size, end in ends if end < len(data)]
    assert any(size == 1 for size, _ in ends)
    assert any(size > 40_000 for size, _ in ends)
    assert any(end % BLOCK_BYTES == 0 for _, end in ends)
    assert any(data[end] & 0xC0 == 0x80 for _, end in ends), "within a character"
    unfinished = [end for _, end in ends if data[end : end + 1] == b"\n"]
    assert len(unfinished) > len(ends) / 12, "lines without their ends"


def test_metadata_is_seen_empty_half_and_whole_and_is_finished_after_its_stream(tmp_path):
    source = ovni(1)
    growth = Growth(source, tmp_path, 1, Style.APPEND)
    thread = THREADS[0]
    document, stream = (tmp_path / thread / name for name in ("stream.json", "stream.obs"))
    seen, sizes = [], []
    while growth.step():
        if document.exists():
            assert stream.stat().st_size >= 8
            now = document.read_bytes()
            if not seen or seen[-1] != now:
                seen.append(now)
            if now == source[f"{thread}/stream.json"]:
                assert stream.read_bytes() == source[f"{thread}/stream.obs"]
        if stream.exists():
            sizes.append(stream.stat().st_size)
    assert sizes[0] == 0
    assert next(size for size in sizes if size) == 8
    whole = [i for i, now in enumerate(seen) if now.endswith(b"}")]
    assert [b"finished" in seen[i] for i in whole] == [False, True]
    assert seen.count(b"") == 2
    assert len(seen) == 6
    offsets = [n for n, action in enumerate(growth.log) if "clock-offsets.txt" in action]
    assert min(offsets) > max(n for n, action in enumerate(growth.log) if "append" in action)


def test_the_newest_member_is_not_whole_on_disk_and_no_line_is_cut_by_a_member(tmp_path):
    data = lines(5, 4000)
    growth = Growth({"t.pfw": data}, tmp_path, 5, Style.MEMBERS)
    path = tmp_path / "t.pfw.gz"
    torn = 0
    while growth.step():
        now = path.read_bytes()
        assert data.startswith(inflated(now))
        try:
            gzip.decompress(now)
        except EOFError:
            torn += 1
    assert torn > 3
    assert gzip.decompress(path.read_bytes()) == data


def test_a_compressed_file_can_be_grown_as_another_style_would_have_written_it(tmp_path):
    data = lines(1, 300)
    source = {"t.pfw.gz": gzip.compress(data[:5000]) + gzip.compress(data[5000:])}
    for style in (Style.APPEND, Style.MEMBERS, Style.COMPRESSED):
        growth = Growth(source, tmp_path / style, 1, style)
        growth.run(lambda: None)
        (incarnation,) = growth.expected()
        assert incarnation.data == data
        assert incarnation.names[-1] == "t.pfw.gz"


def test_a_copy_is_complete_before_the_original_goes(tmp_path):
    source = ovni(4)
    growth = Growth(source, tmp_path, 4, Style.MOVED)
    unfinished = set()
    while growth.step():
        for thread in THREADS:
            name = f"{thread}/stream.obs"
            copy, original = tmp_path / "trace" / name, tmp_path / "tmp" / name
            if copy.exists():
                assert (tmp_path / "trace" / thread / "stream.json").exists()
                assert original.exists() or copy.read_bytes() == source[name]
                if copy.stat().st_size < len(source[name]):
                    assert copy.stat().st_size % BLOCK_BYTES == 0
                    unfinished.add(name)
    assert unfinished
    assert not (tmp_path / "tmp").exists()


def test_a_growth_that_is_closed_stays_as_it_is(tmp_path):
    growth = Growth({"trace": lines(1, 3000)}, tmp_path, 1, Style.APPEND)
    while not any("append" in action for action in growth.log):
        growth.step()
    size = (tmp_path / "trace").stat().st_size
    growth.close()
    assert not growth.step()
    assert (tmp_path / "trace").stat().st_size == size


def test_a_directory_is_read_with_all_that_is_below_it(tmp_path):
    grown(tmp_path / "a", Style.APPEND)
    growth = Growth(tmp_path / "a", tmp_path / "b", 1, Style.APPEND)
    growth.run(lambda: None)
    assert tree(tmp_path / "b") == tree(tmp_path / "a") == run_of(Style.APPEND, 1)
    assert set(tree(tmp_path / "a" / "trace")) == {"trace"}


def test_a_style_says_what_it_lacks(tmp_path):
    source = {"trace": b"1\n"}
    with pytest.raises(ValueError, match="there must be a second run"):
        Growth(source, tmp_path, 1, Style.EXECUTED)
    with pytest.raises(ValueError, match="somebody must say"):
        Growth(source, tmp_path, 1, Style.DELETED)
    with pytest.raises(ValueError, match="begins as the first did"):
        Growth(source, tmp_path, 1, Style.REUSED, second=source, seen=lambda _: True).run(
            lambda: None
        )
