"""Test the kernel of ET3: which lines it reads, and its limits. `test_kernels.py` has the tests for all kernels."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tailrace import kernels
from tailrace.decoding.formats.et3.stack import DEPTH_MAX, THREADS_MAX
from tests.decoding.blockwise import records
from tests.decoding.et3_lines import et3
from tests.decoding.kernel_inputs import damaged
from tests.decoding.pair import Pair, rows

pytestmark = pytest.mark.skipif(
    not kernels.active(), reason="kernels are off, or not built: make clean dev"
)


def stated(*parts):
    """Return what the decoder with the kernel returns for lines in the specification's form. The first line, which
    Python reads, precedes them.
    """
    return _said("specification", b"M 1 2 1\n", parts)


def threaded(*parts, path=""):
    """Return what the decoder with the kernel returns for lines in the agents' form."""
    return _said("agent", b"W 0 0 7\n", parts, path)


def _said(dialect, first, parts, path=""):
    pair = Pair("et3", path=path, dialect=dialect)
    pair.feed(first)
    units = [unit for part in parts for unit in pair.feed(part)]
    pair.end()
    return units


def test_what_is_usual_takes_the_kernel():
    lines = [
        b"M 2 0 2\n", b"N 5 16 7 8 0 2\n", b"N 5 16 7 8 3 2\n", b"A 5 16 7 8 0 2\n", b"U 5 6 7 2\n", b"W 5 7 2\n", b"D 5 9 1\n",
        b"E 2 3\n", b"X 1 2 999999999999999999 4\n", b"D 5 9 4\n",
    ]  # fmt: skip
    assert rows(stated(b"".join(lines))) == len(lines)


@pytest.mark.parametrize(
    "unusual",
    [
        b"M 2 0 3\n", b"M 2 0 1\n", b"W 5 7 2\n", b"W 5 7 0\n", b"D 5 9 2\n", b"E 2 2\n", b"M 02 0 2\n", b"M 2  0 2\n", b"M 2 0 2 \n",
        b"M 2 0 2\r\n", b" M 2 0 2\n", b"\nM 2 0 2\n", b"M 2 0 2 # x\n", b"M 2 0\n", b"M 2 0 2 2\n", b"M -2 0 2\n", b"Q 1\n", b"M\n",
        b"M 1000000000000000000 0 2\n", b"M 2 0 0x2\n", b"M 2 0 2\0\n", b"m 2 0 2\n", b"MM 2 0 2\n", b"M2 0 2\n", b"D 5 9 -1\n",
    ],
)  # fmt: skip
def test_what_is_not_is_left_to_python_alone(unusual):
    units = stated(b"W 5 7 1\n", unusual)
    assert rows(units) == 1
    assert len(records(units)) >= 2 or unusual == b"M\n"


def test_deaths_of_agents_are_usual_while_they_prove_nothing():
    steps = b"".join(b"M %d 0 7\n" % n for n in range(6))
    agree = steps + b"D 5 7 6\nM 6 0 7\nD 5 7 7\n"
    usual = [
        rows(threaded(agree, more, path="/run/trace_reordered"))
        for more in (b"", b"D 5 7 7\nD 5 7 5\n")
    ]
    assert usual[1] - usual[0] == 2
    assert rows(threaded(steps + b"D 5 7 7\n", path="/run/trace_reordered")) == 6
    # The clock of a running agent: each death is ahead by another difference, until no death is trusted.
    course = b"".join(b"M %d 0 7\nD 5 7 %d\n" % (n, 17 * n) for n in range(1, 9))
    assert rows(threaded(course)) == 16
    assert rows(threaded(course + b"D 5 7 3\n")) == 17
    # Three deaths with equal differences make the times of deaths trusted. Python reads these lines.
    agreeing = b"".join(b"M %d 0 7\nD 5 7 %d\n" % (n, n + 4) for n in range(1, 5))
    units = threaded(agreeing)
    assert rows(units) == 7
    assert [record.detail.count for record in records(units) if record.kind == "gap"] == [0]


def test_an_exit_of_another_frame_than_the_last_is_left_to_python():
    entries = b"M 1 0 7\nM 2 0 7\nM 3 0 7\nM 4 0 8\n"
    assert rows(threaded(entries + b"E 2 7\nE 1 7\nE 4 8\n")) == 6
    assert rows(threaded(entries + b"E 3 8\n")) == 4
    assert rows(threaded(b"E 3 8\n")) == 0
    lacking = (
        b"M 1 0 7\nM 2 0 7\nE 9 7\n"  # the end of either frame proves that an entry is missing
    )
    assert rows(threaded(lacking, b"M 3 0 7\nE 3 7\n", b"E 2 7\n", b"E 1 7\n")) == 5


def test_a_line_over_the_limit_is_left_to_python():
    for limit, usual in ((20, 2), (19, 1), (18, 0)):
        pair = Pair("et3", limit, dialect="specification")
        pair.feed(b"M 1 2 1\n")
        units = pair.feed(b"N 100000 2 3 4 5 1\n" + b"N 1000000 2 3 4 5 1\n")
        assert rows(units) == usual


def test_a_clock_near_the_end_of_its_bits_is_left_to_python():
    assert rows(stated(b"M 1 2 %d\nM 1 2 %d\nW 1 2 %d\n" % (2**63 - 2, 2**63 - 1, 2**63 - 1))) == 0
    last = b"".join(b"M 1 2 %d\n" % time for time in range(10**18 - 3, 10**18))
    assert rows(stated(last * 2)) == 1


def test_a_file_of_et1_is_left_to_python():
    pair = Pair("et3", dialect="agent")
    pair.feed(b"T a 2 3 b\n")
    assert rows(pair.feed(b"M 1 2 3\n" * 20)) == 0


def test_a_thread_that_may_be_a_clock_is_left_to_python():
    large = b"M 1 0 %d\n" % 2**30
    assert rows(threaded(large + b"E 1 %d\nM 1 0 9\n" % 2**30)) == 2
    assert rows(threaded(large, b"M 1 0 9\nM 1 0 9\nW 1 2 9\nW 1 2 8\n")) == 3
    assert rows(threaded(large, b"M 1 0 1\nM 1 0 2\n" + large)) == 1


def test_lines_behind_nuls_begin_in_the_middle():
    units = stated(b"M 1 2 2\n" + b"\0" * 9 + b"M 1 2 7\nM 1 2 8\n")
    assert rows(units) == 2


def test_as_many_frames_and_threads_as_python_remembers():
    deep = b"".join(b"M %d 0 %d\n" % (n % 7, n) for n in range(2, DEPTH_MAX + 3))
    assert rows(stated(deep)) == DEPTH_MAX
    many = b"".join(b"M 1 0 %d\n" % n for n in range(5, THREADS_MAX + 8))
    units = threaded(many + b"E 1 5\nE 1 9\nM 1 0 5\n")
    assert rows(units) >= THREADS_MAX


def test_more_open_frames_than_the_kernel_takes_are_left_to_python():
    deep = [b"M 1 0 %d\n" % thread * 4000 for thread in range(1, 7)]
    pair = Pair("et3", dialect="agent")
    for part in deep:
        pair.feed(part)
    assert rows(pair.feed(b"M 1 0 1\n" * 20)) == 0
    for thread in range(1, 7):
        pair.feed(b"E 1 %d\n" % thread * 3900)
    assert rows(pair.feed(b"M 1 0 1\n" * 20)) == 20


def test_more_streams_than_the_kernel_remembers():
    lines = b"".join(b"W 1 2 %d\n" % thread for thread in range(10_000))
    assert rows(threaded(lines)) == 10_000
    assert rows(threaded(lines + b"M 1 0 5\nE 1 5\n" + lines)) == 20_002


def test_more_methods_than_the_kernel_remembers():
    lines = b"".join(b"M %d 0 7\nE %d 7\nU 1 2 %d 7\n" % (n, n, n) for n in range(20_000))
    assert rows(threaded(lines)) == 60_000


def test_more_text_of_names_than_the_kernel_remembers():
    pair = Pair("et3", dialect="agent")
    pair.feed(b"W 0 0 7\n")
    names = b"".join(b"C%d%s,%d\n" % (n, b"n" * 900, n) for n in range(3000))
    pair.document("classs.list", names)
    lines = b"".join(b"W 1 %d 7\n" % n for n in range(3000))
    for _ in range(2):
        units = pair.feed(lines)
        assert rows(units) == 3000
    assert records(units)[-1].attributes.count("n" * 900) == 1


def test_names_that_become_known_or_are_evicted_change_what_comes_next():
    lines = b"M 1 0 7\nN 1 2 3 4 5 7\nU 1 2 4 7\nW 1 3 7\n"
    pair = Pair("et3", dialect="agent")
    assert '"$name":"method:1"' in records(pair.feed(lines))[1].attributes
    pair.document("methods.list", b"A#run,1\n")
    units = pair.feed(b"E 1 7\n")
    assert rows(units) == 0
    assert '"$name"' in records(units)[0].attributes
    assert [unit.name for unit in records(pair.feed(lines + b"E 1 7\n"))][0::4] == ["A#run"] * 2
    pair.document("classs.list", "Größe,3\n".encode())
    pair.document("fields.list", b"A#f,4\n")
    assert all("$late" not in record.attributes for record in records(pair.feed(lines)))
    pair.give_way(10**6)
    pair.feed(lines)
    pair.document("methods.list", b"%s,1\n" % (b"n" * 20_000))
    pair.feed(lines + b"E 1 7\n")


def test_losses_that_an_evicted_frame_explains_are_taken_back_at_the_next_entry():
    pair = Pair("et3", dialect="agent")
    pair.feed(b"M 1 0 7\nE 5 7\nE 1 7\nM 5 0 7\nM 9 0 7\n")
    pair.give_way(1)
    assert [unit.kind for unit in records(pair.feed(b"M 2 0 7\nE 2 7\n" * 300))].count("heal") == 1


def test_files_read_in_turn_keep_their_names_apart():
    one, other = Pair("et3", dialect="agent"), Pair("et3", dialect="agent")
    one.document("methods.list", b"One,1\n")
    other.document("methods.list", b"Other,1\n")
    for _ in range(3):
        assert [r.name for r in records(one.feed(b"M 1 0 7\n")) if r.size] == ["One"]
        assert [r.name for r in records(other.feed(b"M 1 0 7\n")) if r.size] == ["Other"]


def test_names_too_long_for_a_block_are_left_to_python(monkeypatch):
    pair = Pair("et3", dialect="agent")
    pair.feed(b"M 1 0 7\n")
    names = {"1": (None, '{"x":"' + "n" * 20_000 + '","receiver":', '{"x":1}')}
    for decoder in (pair.python, pair.kernel):
        decoder._names.methods.update(names)
        decoder._names.version = object()
    assert rows(pair.feed(b"M 1 0 7\n" * 20)) == 0


@given(st.randoms(use_true_random=False), st.sampled_from(["auto", "specification", "agent"]))
def test_damaged_lines_are_the_same(rng, dialect):
    pair = Pair(
        "et3", rng.choice([64, 200, 4096]), rng.choice(["", "/run/trace_reordered"]), dialect
    )
    pair.feed(damaged(et3(rng), rng))
    pair.document("methods.list", b"A#m,1\nA#n,2\n")
    pair.feed(damaged(et3(rng), rng))
    pair.end()
