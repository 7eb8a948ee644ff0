"""Pieces of DFTracer's runs in files of their own, imported or followed, in any order: the rows of the whole, nothing
missing where another piece goes on, and exactly what no piece has."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from itertools import pairwise, permutations

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from msgspec.structs import replace

from tailrace.ingest.machine import Ingest
from tailrace.ingest.state import decode, encode
from tailrace.ledger import split_runs
from tailrace.spool.payloads import FileFacts, OpenInfo, Rest
from tests.decoding import dftracer_lines
from tests.ingest.log import Log, run
from tests.ingest.test_dftracer_files import events, trace

COUNTING = ("v220_preload_threads", "v220_py_plain", "v220_fork_parent", "v210_py_brackets")
"""Whole traces of releases whose ids count events."""
TIMES = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


def number(line):
    found = re.match(rb'\{"id":(\d+)', line)
    return int(found[1]) if found else None


def cut(draw, lines, most=6):
    places = draw(st.lists(st.integers(1, len(lines) - 1), max_size=most - 1, unique=True))
    return [lines[a:b] for a, b in pairwise([0, *sorted(places), len(lines)])]


def dealt(draw, lines):
    """Lines dealt out to several files in batches, the last ones to any of them: perhaps to that which has the first ones."""
    size, count = draw(st.sampled_from([1, 7, 40])), draw(st.integers(2, 4))
    hands = [[] for _ in range(count)]
    for at in range(0, len(lines) - 10, size):
        hands[at // size % count] += lines[at : min(at + size, len(lines) - 10)]
    hands[draw(st.integers(0, count - 1))] += lines[-10:]
    return hands


def imported(files):
    log = Log()
    for place, lines in enumerate(files):
        file = log.open_file("dftracer", f"/runs/{place}.pfw")
        log.data(file, b"".join(lines))
        log.close(file, "end of file")
    return log.entries


def followed(files, *, closed=False):
    """Files that grow and rest, are all open at the same time, and stop with the daemon."""
    log, numbers = Log(), []
    for place, lines in enumerate(files):
        file = log.open_file("dftracer", f"/runs/{place}.pfw")
        numbers.append(file)
        data = b"".join(lines)
        log.data(file, data[: len(data) // 2])
        log.tick(1)
        log.data(file, data[len(data) // 2 :])
        if place % 3:
            rest = Rest(why="silent", since=log.now)
            facts = FileFacts(path=f"/runs/{place}.pfw", device=1, inode=2, birth=3)
            log.file(file, replace(facts, rest=rest))
    log.stop()
    if closed:
        for file in numbers:
            log.close(file, "deleted")
    return log.entries


def lacking(rows):
    """The missing numbers that no heal took back, and how many sessions lack an unknown number, by the word for it.

    For numbers of which one gap says only how many they are, the first one stands."""
    ids, unknown, rests = Counter(), Counter(), {}
    scattered = {
        row["session"]: row
        for row in rows
        if row["kind"] == "gap" and '"last"' in (row["attributes"] or "")
    }
    for row in rows:
        about = json.loads(row["attributes"] or "{}")
        root = row["session"].partition(".")[0]
        if row["kind"] in ("gap", "heal"):
            sign = 1 if row["kind"] == "gap" else -1
            if row["seq"] is None:
                unknown[row["session"], about["detail"]] += sign
            else:
                several = scattered.get(row["session"])
                for id_ in range(row["seq"], row["seq"] + row["missing"]):
                    last = json.loads(several["attributes"])["last"] if several else 0
                    among = several and several["seq"] <= id_ <= last
                    ids[row["session"], several["seq"] if among else id_] += sign
        elif row["kind"] == "session" and row["name"] == "rest":
            rests[root] = about.get("lacks")
        elif row["kind"] == "session" and row["name"] == "close":
            rests.pop(root, None)
    firsts = {(session, row["seq"]) for session, row in scattered.items()}
    assert {left for key, left in ids.items() if key not in firsts} <= {0, 1}
    assert {*unknown.values()} <= {0, 1}
    assert min(ids.values(), default=0) >= 0
    words = [detail for (_, detail), left in unknown.items() if left]
    words += filter(None, rests.values())
    return sorted(id_ for _, id_ in ids.elements()), Counter(words)


WAYS = {
    "imported": imported,
    "followed": followed,
    "followed and deleted": lambda files: followed(files, closed=True),
}
any_way = st.sampled_from(sorted(WAYS))


def checked(entries, data=None):
    """The rows of entries, with a checkpoint somewhere. The sums that the collector states are those of the rows."""
    place = data.draw(st.integers(0, len(entries))) if data else 0
    ingest, rows = run(entries[:place])
    ingest, more = run(entries[place:], Ingest.restore(ingest.snapshot()))
    ids, _ = lacking(rows + more)
    assert ingest.account("s").missing == len(ids) == ingest.tally("s").said_missing
    assert ingest.account("s").imbalance == 0
    return ingest, rows + more


@TIMES
@given(st.data(), any_way, st.lists(st.sampled_from(COUNTING), min_size=1, max_size=3))
def test_pieces_of_runs_in_any_order_lack_nothing(data, way, names):
    traces = [trace(name, pid) for pid, name in enumerate(names, 100)]
    split = data.draw(st.sampled_from([cut, dealt]))
    files = data.draw(st.permutations([f for lines in traces for f in split(data.draw, lines)]))
    ingest, rows = checked(WAYS[way](files), data)
    whole = [run(imported([lines]))[1] for lines in traces]
    assert events(rows) == sum(map(events, whole), Counter())
    assert lacking(rows) == ([], {})
    assert ingest.tally("s").unknown_gaps == 0
    if way != "followed":
        assert not ingest.state.pieces["s"].runs


@TIMES
@given(st.data(), st.sampled_from(["imported", "followed and deleted"]), st.booleans())
def test_pieces_that_are_read_again_lack_what_the_first_ones_lack(data, way, gone):
    """Such as by `import --again`, and files that hold several pieces."""
    lines = trace(COUNTING[0])
    files = data.draw(st.sampled_from([cut, dealt]))(data.draw, lines)
    if gone:
        files.pop(data.draw(st.integers(0, len(files) - 1)))
    once = lacking(checked(WAYS[way](files))[1])
    again = (
        data.draw(st.lists(st.sampled_from([*files, *([] if gone else [lines])]), min_size=1))
        if files
        else []
    )
    _, rows = checked(WAYS[way]([*files, *again]), data)
    assert lacking(rows) == once


def test_a_whole_file_brings_what_its_pieces_lacked():
    lines = trace(COUNTING[0])
    assert lost(lines[:200], lines[300:], lines) == ([], {})
    assert lost(lines[:200], lines[:300], lines[250:], lines[280:]) == ([], {})


def test_what_came_in_two_files_is_healed_once():
    log = Log()
    file, other = (log.open_file("dftracer", f"/runs/{n}") for n in range(2))
    log.data(file, b"".join([*traced([1, 2, 4, 6], last=6), b"]\n"]))
    log.data(other, b"".join(traced([3], last=6)))
    log.close(other, "end of file")
    log.data(file, b"".join(traced([3], last=6)))
    log.close(file, "end of file")
    assert lacking(checked(log.entries)[1]) == ([5], {})


def test_runs_that_lack_nothing_are_remembered_up_to_a_limit(monkeypatch):
    monkeypatch.setattr(split_runs, "DONE_MAX", 3)
    files = [traced(range(1, 9), pid=pid, last=8) for pid in range(10)]
    ingest, _ = checked(imported([*files, *(lines[3:] for lines in files[7:])]))
    assert len(ingest.state.pieces["s"].done) == 3
    assert lost(*files, *(lines[3:] for lines in files)) == ([], {"no_start": 7})


@TIMES
@given(st.data(), any_way, st.sampled_from(COUNTING[:3]))  # each of whose lines shows its release
def test_a_piece_that_is_not_there_is_missed_exactly(data, way, name):
    lines = trace(name)
    files = cut(data.draw, lines)
    gone = set(filter(None, map(number, files.pop(data.draw(st.integers(0, len(files) - 1))))))
    had = set(filter(None, map(number, lines))) - gone
    if not gone or not had:
        return
    _, rows = checked(WAYS[way](data.draw(st.permutations(files))), data)
    ids, unknown = lacking(rows)
    first, last = 1 in had, max(had) > max(gone)
    assert ids == (sorted(gone) if first and last else [])
    if first and last:
        assert not unknown
    elif way != "followed":  # which calls no beginning late before its file is closed
        assert unknown == Counter([*(["no_start"] * (not first)), *(["no_end"] * (not last))])
    else:
        assert unknown or not last


@TIMES
@given(st.data(), any_way, st.sampled_from(COUNTING[:3]))
def test_pieces_of_a_run_that_nobody_ended_lack_its_end_once(data, way, name):
    """As a tool splits the trace of a killed process."""
    pieces = cut(data.draw, trace(name))
    pieces[-1] = [line for line in pieces[-1] if b'"name":"end"' not in line]
    _, rows = checked(WAYS[way](data.draw(st.permutations(pieces))), data)
    assert lacking(rows) == ([], {"no_end": 1})


def traced(ids, *, pid=5, host="h", at=0, last=0, first=1):
    """Lines of a run with these ids, which begins at a time."""
    args = f'"hhash":"{host}"' if host else None
    found = []
    for id_ in ids:
        word = {first: "start", last: "end"}.get(id_)
        more = {"name": word, "cat": "dftracer"} if word else {}
        line = dftracer_lines.event(id_, pid=pid, ts=at + 10 * id_, args=args, **more)
        found.append(f"{line}\n".encode())
    return found


def lost(*files, way="imported"):
    ids, unknown = lacking(checked(WAYS[way](files))[1])
    return ids, dict(unknown)


RUNS = [
    *(traced(range(a, a + 20), last=60) for a in (1, 21, 41)),
    *(traced(range(a, a + 20), last=60, at=10_000) for a in (1, 21, 41)),
]
"""Two runs of one process, one after the other, as after exec, in three pieces each."""


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4, 5), (0, 2, 3, 5, 1, 4), (5, 3, 4, 2, 0, 1)])
def test_runs_of_one_process_are_told_apart_by_time(order):
    assert lost(*(RUNS[n] for n in order)) == ([], {})


@pytest.mark.parametrize("order", [(0, 5), (5, 0), (3, 2), (2, 3), (1, 3, 5), (0, 3, 4)])
def test_no_run_is_whole_by_the_pieces_of_another(order):
    ids, unknown = lost(*(RUNS[n] for n in order))
    assert ids or unknown


@TIMES
@given(st.data(), st.sampled_from(sorted(WAYS)))
def test_pieces_of_runs_with_one_pid_and_host_count_nothing_that_is_there(data, way):
    """The process of a container has the PID 1 in each run. A piece may be read before the one that precedes it."""
    pieces, lost_ids = [], []
    for run_ in range(data.draw(st.integers(2, 3))):
        last = data.draw(st.integers(4, 15))
        places = cut(data.draw, range(1, last + 1), 4)
        for number, ids in enumerate(places):
            at = 1000 * run_
            pieces.append((ids, traced(ids, at=at, last=last), number not in (0, len(places) - 1)))
    inner = [n for n, (_, _, within) in enumerate(pieces) if within]
    if inner and data.draw(st.booleans()):
        lost_ids = list(pieces.pop(data.draw(st.sampled_from(inner)))[0])
    files = [lines for _, lines, _ in data.draw(st.permutations(pieces))]
    ids, unknown = lost(*files, way=way)
    assert {*ids} <= {*lost_ids}
    assert bool(ids or unknown) >= bool(lost_ids)


def test_two_whole_runs_with_one_pid_and_host_lack_nothing():
    whole = [traced(range(1, n), last=n - 1, at=at) for n, at in ((9, 0), (9, 10_000), (5, 20_000))]
    for files in permutations(whole):
        for way in WAYS:
            assert lost(*files, way=way) == ([], {})


@pytest.mark.parametrize("at", [0, 200_000])
def test_a_killed_run_of_another_time_hides_no_hole(at):
    split = [traced(ids, at=100_000, last=12) for ids in (range(1, 5), range(9, 13))]
    killed = traced(range(1, 6), at=at, last=50)
    assert lost(*split, killed) == ([5, 6, 7, 8], {"no_end": 1})


def test_a_later_run_does_not_begin_an_earlier_one():
    assert lost(RUNS[1], RUNS[2], RUNS[3]) == ([], {"no_start": 1, "no_end": 1})


def test_hosts_are_told_apart():
    head, tail = traced(range(1, 6), host="a"), traced(range(6, 9), host="b", last=8)
    assert lost(head, tail) == ([], {"no_start": 1, "no_end": 1})


def test_a_piece_without_a_host_is_of_the_only_run_that_suits():
    """The tracer's defaults name the host in the first lines alone."""
    heads = [traced(range(1, 6), host=host) for host in "ab"]
    tail = traced(range(6, 9), host="", last=8)
    assert lost(heads[0], tail) == lost(tail, heads[0]) == ([], {})
    assert lost(*heads, tail) == ([], {"no_start": 1, "no_end": 2})


def test_a_piece_with_aggregates_proves_nothing_of_its_run():
    fold = (
        re.sub(
            '"(id|dur)":[0-9]+,', "", dftracer_lines.event(9, ph=3, pid=5, args='"hhash":"h"')
        ).encode()
        + b"\n"
    )
    head, middle, tail = (traced(ids, last=9) for ids in (range(1, 4), range(4, 6), range(8, 10)))
    assert lost(head, tail) == ([4, 5, 6, 7], {})
    for files in permutations((head, [*middle, fold], tail)):
        ids, unknown = lost(*files)
        assert not ids
        assert unknown


def test_a_file_that_grows_after_its_rest_takes_back_what_it_has():
    log, (head, middle, tail) = (
        Log(),
        (traced(ids, last=9) for ids in (range(1, 4), range(4, 6), range(6, 10))),
    )
    facts = FileFacts(path="/runs/a", device=1, inode=2, birth=3)
    files = [log.open_file("dftracer", "/runs/a"), log.open_file("dftracer", "/runs/b")]
    log.data(files[0], b"".join(head))
    log.data(files[1], b"".join(tail))
    for file in files:
        log.file(file, replace(facts, rest=Rest(why="silent", since=log.now)))
    assert lacking(run(log.entries)[1]) == ([4, 5], {})
    log.data(files[0], b"".join(middle))
    log.file(files[0], replace(facts, rest=Rest(why="silent", since=log.now)))
    _, rows = checked(log.entries)
    assert lacking(rows) == ([], {})
    for file in files:
        log.close(file, "deleted")
    ingest, rows = checked(log.entries)
    assert lacking(rows) == ([], {})
    assert not ingest.state.pieces["s"].runs


def test_what_pieces_take_is_bounded(monkeypatch):
    monkeypatch.setattr(split_runs, "PLACES_MAX", 20)
    files = [traced(range(6, 9), pid=pid, last=8) for pid in range(30)]
    ingest, rows = checked(imported(files))
    assert len(ingest.state.pieces["s"].runs) == 10
    assert lacking(rows) == ([], {"no_start": 30})
    more = imported([*files, *(traced(range(1, 6), pid=pid) for pid in range(30))])
    _, rows = checked(more)
    assert lacking(rows)[1]["no_start"] == lacking(rows)[1]["no_end"] > 0


def steps(files):
    """How many functions are called for files that are imported."""
    entries, calls = imported(files), Counter()
    sys.setprofile(lambda _frame, event, _: calls.update([event]))
    try:
        run(entries)
    finally:
        sys.setprofile(None)
    return calls["call"] + calls["c_call"]


def test_a_piece_costs_the_same_among_few_and_many():
    def some(count):
        found = [traced(range(3 * n + 1, 3 * n + 4), last=3 * count) for n in range(count)]
        return steps([*found[::2], *found[1::2]]) / count

    assert some(400) < 1.3 * some(50)


def rest(log, file):
    facts = FileFacts(path="/runs/a", device=1, inode=2, birth=3)
    log.file(file, replace(facts, rest=Rest(why="silent", since=log.now)))


def opened(log, path, *replaces):
    """The number of a session of a file, which stands for others, and its name."""
    number = log.open_file("dftracer", path)
    entry = log.entries.pop()
    info = replace(decode(entry.payload, OpenInfo), replaces=replaces)
    log.add(entry.kind, number, encode(info))
    return number, info.session


FOLD = (
    re.sub('"(id|dur)":[0-9]+,', "", dftracer_lines.event(9, ph=3, pid=5, args='"hhash":"h"'))
    + "\n"
).encode()
"""An aggregate, whose calls took ids."""


def test_ids_near_the_largest_number_are_an_unknown_number():
    last = 2**63 - 1

    def line(id_, pid):
        word = {1: "start", last: "end"}.get(id_)
        more = {"name": word, "cat": "dftracer"} if word else {}
        about = {"pid": pid, "ts": min(id_, 10**6), "args": '"hhash":"h"'} | more
        return f"{dftracer_lines.event(id_, **about)}\n".encode()

    files = [[line(id_, pid) for id_ in ids] for pid in (5, 6, 7) for ids in ([1, 2], [last])]
    ingest, _ = run(imported(files))
    assert ingest.tally("s").unknown_gaps == 3
    assert Ingest.restore(ingest.snapshot()).account("s").missing == 0


def test_a_chain_of_files_is_told_at_once_that_their_runs_are_whole():
    """Each file has the end of the run that the next one begins."""
    log, count = Log(), 400
    files = [log.open_file("dftracer", f"/runs/{n}") for n in range(count)]
    for n, file in enumerate(files):
        ids = {n: range(1, 6), n + 1: range(6, 8)}
        log.data(file, b"".join(line for p, i in ids.items() for line in traced(i, pid=p, last=8)))
        rest(log, file)
    for n, file in enumerate(files):
        log.data(file, b"".join(traced([8], pid=n + 1, last=8)))
    log.stop()
    ids, unknown = lacking(checked(log.entries)[1])
    assert not ids
    assert sum(unknown.values()) <= 2  # the first run's beginning and the last one's end


def test_the_end_of_a_run_in_another_file_shows_before_a_checkpoint():
    log = Log()
    head, tail = (log.open_file("dftracer", f"/runs/{n}") for n in range(2))
    log.data(head, b"".join(traced(range(1, 6), last=8)))
    rest(log, head)
    log.data(tail, b"".join([*traced(range(6, 9), last=8), *traced([1], at=10_000)]))
    words = [json.loads(r["attributes"]) for r in run(log.entries)[1] if r["name"] == "rest"]
    assert [about["lacks"] for about in words if about["rest"]] == ["no_end", ""]


def test_a_file_that_turns_out_to_be_whole_leaves_no_piece():
    log = Log()
    whole = log.open_file("dftracer", "/runs/a")
    for ids in (range(1, 51), range(51, 201)):
        log.data(whole, b"".join(traced(ids, last=200)))
        rest(log, whole)
    log.close(whole, "deleted")
    later = log.open_file("dftracer", "/runs/b")
    log.data(later, b"".join(traced(range(51, 201), last=200, at=100_000)))
    log.close(later, "deleted")
    assert lacking(checked(log.entries)[1]) == ([], {"no_start": 1})


@pytest.mark.parametrize("host", ["h", ""])
def test_a_whole_run_with_aggregates_leaves_the_gaps_of_others(host):
    head, tail = traced(range(1, 4), last=9), traced(range(6, 10), last=9)
    fold = FOLD if host else FOLD.replace(b'"hhash":"h"', b"")
    first, last = (traced(i, at=10**6, last=9, host=host) for i in ([1, 2], [8, 9]))
    assert lost(head, tail, [*first, fold, *last]) == ([4, 5], {})


def test_one_piece_that_shows_that_ids_count_suffices():
    def old(ids):
        return [line.replace(b'"ph":1', b'"ph":"X"') for line in traced(ids, last=9)]

    shows = (
        dftracer_lines.metadata("CM", "x", "y")
        .replace('"pid":7', '"pid":5')
        .replace('"tid":7', '"tid":5')
        .replace(dftracer_lines.HOST, "h")
        .replace('"ph":4', '"ph":"M"')
    )
    files = [old([1, 2]), [f"{shows}\n".encode(), *old([4, 5])], old([8, 9])]
    found = [lost(*order) for order in permutations(files)]
    assert all(ids == [3, 6, 7] for ids, _ in found), found


def test_a_piece_without_the_beginning_of_its_run_lacks_something_at_rest():
    log = Log()
    files = [log.open_file("dftracer", f"/runs/{n}") for n in range(2)]
    for file, ids in zip(files, (range(51, 101), range(101, 301)), strict=True):
        log.data(file, b"".join(traced(ids, last=300)))
    for file in files:
        rest(log, file)
    log.stop()
    ids, unknown = lacking(checked(log.entries)[1])
    assert not ids
    assert unknown


def test_ids_behind_the_end_are_not_missing():
    def lines(ids):
        return traced(ids, last=10)

    assert lost(lines(range(1, 6)), lines([*range(6, 11), 13])) == ([], {})


@pytest.mark.parametrize("rests", [False, True])
def test_a_joined_piece_that_grows_by_aggregates_proves_nothing(rests):
    log = Log()
    head, tail = (log.open_file("dftracer", f"/runs/{n}") for n in range(2))
    log.data(head, b"".join(traced(range(1, 101), last=200)))
    rest(log, head)
    log.data(tail, b"".join(traced(range(101, 151), last=200)))
    if rests:
        rest(log, tail)
    log.data(tail, FOLD + b"".join(traced([199, 200], last=200)))
    rest(log, tail)
    assert lacking(checked(log.entries)[1])[0] == []
    log.close(head, "deleted")
    log.close(tail, "deleted")
    assert lacking(checked(log.entries)[1])[0] == []


@pytest.mark.parametrize("order", list(permutations("abc")))
def test_files_that_are_read_again_stand_for_those_read_before(order):
    log, names = Log(), {}
    parts = {"a": range(1, 101), "b": range(101, 201), "c": range(201, 301)}
    data = {name: b"".join(traced(ids, last=300)) for name, ids in parts.items()}
    for name in "ac":
        file, names[name] = opened(log, f"/runs/{name}")
        log.data(file, data[name])
        log.close(file, "end of file")
    replaces = {name: [names[name]] if name in names else [] for name in order}
    files = {name: opened(log, f"/runs/{name}", *replaces[name])[0] for name in order}
    for name, file in files.items():
        log.data(file, data[name])
        log.close(file, "end of file")
    ingest, rows = run(log.entries)
    hidden = set(names.values())
    assert lacking([row for row in rows if row["session"] not in hidden]) == ([], {})
    assert not ingest.state.pieces["s"].runs


def test_as_many_hosts_as_one_likes_may_have_the_same_process():
    hosts = [f"h{n}" for n in range(split_runs.LOOKED_AT + 8)]
    heads = [traced(range(1, 6), pid=7, host=host) for host in hosts]
    tails = [traced(range(6, 9), pid=7, host=host, last=8) for host in hosts]
    assert lost(*heads, *tails) == ([], {})


def test_the_gaps_of_a_run_are_bounded(monkeypatch):
    monkeypatch.setattr(split_runs, "GAPS_MAX", 4)
    head, tail = traced(range(1, 40, 2), last=40), traced([40], last=40)
    ingest, rows = run(imported([head, tail]))
    gaps = [row for row in rows if row["kind"] == "gap" and row["seq"]]
    assert [(row["seq"], row["missing"]) for row in gaps] == [(2, 1), (4, 1), (6, 1), (8, 16)]
    assert json.loads(gaps[-1]["attributes"])["last"] == 38
    assert ingest.account("s").missing == 19
    more = imported([head, tail, traced(range(2, 40, 2))])
    assert run(more)[0].account("s").missing == 0


def test_pieces_without_numbers_cost_the_same_among_few_and_many():
    def some(count):
        return steps([[*traced([2, 3], at=1000 * n), FOLD] for n in range(count)]) / count

    assert some(400) < 1.3 * some(50)


@pytest.mark.parametrize("rests", [False, True])
def test_holes_of_a_forgotten_run_are_said_once(monkeypatch, rests):
    """The file stays open, while others need the place of its run."""
    monkeypatch.setattr(split_runs, "PLACES_MAX", 8)
    log = Log()
    file = log.open_file("dftracer", "/runs/a")
    log.data(file, b"".join([*traced([1, 2, 4, 6], last=6), b"]\n"]))
    for pid in range(10, 15):
        other = log.open_file("dftracer", f"/runs/{pid}")
        log.data(other, b"".join(traced([1, 2], pid=pid)))
        log.close(other, "end of file")
    if rests:
        rest(log, file)
        rest(log, file)
    before = lacking(checked(log.entries)[1])
    log.close(file, "end of file")
    assert before == lacking(checked(log.entries)[1]) == ([3, 5], {"no_end": 5})
    late = log.open_file("dftracer", "/runs/b")
    log.data(late, b"".join(traced([3], last=6)))
    log.close(late, "end of file")
    assert lacking(checked(log.entries)[1]) == ([5], {"no_end": 5})


def test_holes_that_an_earlier_version_said_are_said_once():
    log = Log()
    file, other = (log.open_file("dftracer", f"/runs/{n}") for n in range(2))
    log.data(file, b"".join([*traced([1, 2, 4, 6], last=6), b"]\n"]))
    log.data(other, b"".join(traced([3], last=6)))
    before, rows = run(log.entries)
    said = len(log.entries)
    before.state.pieces.clear()
    log.close(other, "end of file")
    log.close(file, "end of file")
    ingest, more = run(log.entries[said:], Ingest.restore(before.snapshot()))
    assert lacking(rows + more) == ([3, 5], {})
    assert ingest.account("s").missing == 2


@pytest.mark.parametrize("joined", [False, True])
def test_a_resting_run_lacks_no_numbers_while_aggregates_may_follow(joined):
    log = Log()
    if joined:
        other = log.open_file("dftracer", "/runs/b")
        log.data(other, b"".join(traced([5], last=6)))
        log.close(other, "end of file")
    file = log.open_file("dftracer", "/runs/a")
    log.data(file, b"".join(traced([1, 2, 4, 6], last=6)))
    rest(log, file)
    assert lacking(checked(log.entries)[1]) == ([], {})
    told = Log()
    told.entries, told.now = [*log.entries], log.now
    told.data(file, b"]\n")
    rest(told, file)
    assert lacking(checked(told.entries)[1]) == ([3] if joined else [3, 5], {})
    log.data(file, FOLD)
    rest(log, file)
    log.close(file, "deleted")
    assert lacking(checked(log.entries)[1])[0] == []


@pytest.mark.parametrize("size", [200, 2**20])
@pytest.mark.parametrize("far", [3, 1500])
def test_the_times_of_a_piece_do_not_depend_on_how_its_bytes_were_cut(size, far):
    """An event that began before all others, or ended after them, may stand anywhere."""
    lines = traced(range(1, 2001), at=1000)
    lines[far - 1] = traced([far], at=-10 * far)[0].replace(b'"dur":5', b'"dur":90000')
    data, log = b"".join(lines), Log()
    file = log.open_file("dftracer", "/runs/a")
    for at in range(0, len(data), size):
        log.data(file, data[at : at + size])
    log.close(file, "deleted")
    ingest, _ = run(log.entries)
    held = ingest.state.pieces["s"].runs[0].pieces.values()
    assert [(each.since, each.until) for each in held] == [(0, 90_000)]


def test_a_run_without_times_is_no_proof_that_another_one_came_before():
    def piece(*ids, last=0):
        return split_runs.RunPiece(pid="7", host="h", ranges=ids, last=last, counts=True)

    later = (5 * 10**15, 5 * 10**15 + 9)
    for over in (False, True):
        runs = split_runs.SplitRuns(split_runs.SplitRunsState())
        runs.take("a", piece((1, 1000), last=1000), split_runs.ANY_TIME, "")
        if over:
            runs.over("a")
        assert runs.take("b", piece((1, 300)), later, "truncated") == []


@pytest.mark.parametrize("whole", [False, True])
def test_a_duration_out_of_all_bounds_makes_no_run_a_copy(whole):
    """A PID is used again, while an event of the run before seems to last for ever."""
    first = traced(range(1, 41), last=40)
    first[30] = first[30].replace(b'"dur":5', b'"dur":9000000000000')
    files = [first[:20], first[20:]] if whole else [first[:20], first[20:39]]
    later = traced(range(1, 11), at=10**9)
    assert lost(*files, later) == ([], {"no_end": 1 if whole else 2})
