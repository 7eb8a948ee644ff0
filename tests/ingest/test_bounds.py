"""The truth lies within the bounds: random traces of each format, and the same traces with losses."""

from __future__ import annotations

import json
import math
import os
import random
import struct
from collections import defaultdict
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from tailrace.analysis import bounds
from tailrace.analysis.bounds import Interval
from tailrace.analysis.losses import ORDERS
from tailrace.analysis.statistics import FIGURES, parse, statistics
from tailrace.decoding.formats import FORMATS
from tailrace.query.completeness import Window, completeness
from tailrace.query.filters import Selection
from tests.decoding import dftracer_lines
from tests.decoding.test_conformance import ALL
from tests.forms import examples
from tests.ingest.log import (
    Log,
    heph_epoch,
    heph_event,
    heph_goodbye,
    heph_session,
    log_of_file,
    run,
)
from tests.program import TRUE
from tests.query.memory import Views

EPOCH = 10**18
ROUNDS = 200 if TRUE in os.environ else 6


@pytest.fixture(scope="module")
def views():
    return Views()


def spell(value):
    return f"{value} ms"


@pytest.mark.parametrize(
    ("interval", "words"),
    [
        (Interval(4, 4), "4 ms"),
        (Interval(3, 4), "3–4 ms"),  # noqa: RUF001 - a range
        (Interval(0, 4), "at most 4 ms"),
        (Interval(3, None), "at least 3 ms"),
        (Interval(None, 4), "at most 4 ms"),
        (Interval(0, None), "cannot be told"),
        (Interval(None, None), "cannot be told"),
    ],
)
def test_an_interval_has_words(interval, words):
    assert interval.words(spell) == words


def test_two_units_are_both_written():
    assert Interval(900, 2000).words(lambda v: f"{v} us" if v < 1000 else "2 ms") == "900 us–2 ms"  # noqa: RUF001


@examples(300)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=12),
    st.data(),
    st.sampled_from([Fraction(n, 100) for n in (1, 50, 90, 95, 99, 100)]),
)
def test_ranks_hold_the_quantile_of_all_and_both_ends_are_possible(everything, data, share):
    lost = data.draw(st.integers(0, len(everything)))
    chosen = data.draw(st.permutations(everything))
    seen = sorted(chosen[lost:])
    low, high = bounds.ranks(share, len(seen), lost)
    for total in range(max(len(seen), 1), len(everything) + 1):
        # lost spans may be fewer than `lost`
        among = sorted(chosen[len(everything) - total :])
        truth = among[max(math.ceil(share * total), 1) - 1]
        assert low < 1 or seen[low - 1] <= truth
        assert high > len(seen) or truth <= seen[high - 1]
    if lost == 0:
        assert low == high


FALLING = {
    "heph/bad_time", "heph/contended", "heph/restart_concat", "ovni/damaged", "ovni/flush_nested", "ovni/fork",
    "ovni/fork_after_flush", "ovni/late_cut", "ovni/late_damaged", "ovni/late_events", "ovni/late_unsorted",
    "ovni/payloads", "ovni/real_nosv_late", "ovni/real_stale_tail", "ovni/stale_tail_killed", "ovni/stale_tail_torn",
    "ovni/stale_twice",
}  # fmt: skip
"""Vectors with a wrong clock, late events, several processes in one file, or threads that share a stream."""


def numbered(vector):
    """Return for each stream the number and the ordering tick of each event."""
    beside = vector.beside or {"path": "/runs/a", "documents": []}
    documents = [(n, text.encode(errors="surrogateescape")) for n, text in beside["documents"]]
    log = log_of_file(vector.way, vector.data, beside["path"], documents,
                      dialect=beside.get("dialect", "auto"), record_max=vector.limit)  # fmt: skip
    number, tick = (each.strip('"') for each in ORDERS[vector.way])
    streams = defaultdict(list)
    for row in run(log.entries)[1]:
        at = row[tick] if row[tick] is not None else row["start"]
        if row["kind"] in ("span", "begin", "instant", "counter", "annotation") and at is not None and row[number] is not None:  # fmt: skip
            streams[row["session"], row["stream"]].append((row[number], at))
    return streams.values()


@pytest.mark.parametrize("format_", [name for name, order in ORDERS.items() if order])
def test_times_rise_with_the_numbers_of_a_stream(format_):
    vectors = [v for v in ALL if v.way == format_ and ".limit" not in v.expectation.name]
    falling = {
        vector.name
        for vector in vectors
        for events in numbered(vector)
        if any(one[1] > other[1] for one, other in pairwise(sorted(events)))
    }
    assert len(vectors) > 10
    assert falling == {name for name in FALLING if name.startswith(format_)}


def test_every_format_has_an_order():
    assert ORDERS.keys() == FORMATS.keys()


def heph(rng):
    """Datagrams of a session whose goodbye numbers its streams, of which some are lost.

    The session opens before, amid or long after its events, on a clock of its own. Threads share the streams of a session
    that no client announced, and stream 0, so that their numbers may be taken later than their ends."""
    announced, shared = rng.random() < 0.7, rng.choice((1, 0))
    datagrams, clocks, numbers = [], {shared: 0, 2: 0}, {shared: 0, 2: 0}
    opened = EPOCH + rng.choice((0, rng.randint(0, 2000), 10**13, -(10**13)))
    for _ in range(rng.choice((20, 120))):
        stream = rng.choice((shared, 2))
        clocks[stream] += rng.randint(0, 60)
        end = clocks[stream]
        if (not announced or stream == 0) and rng.random() < 0.1:
            end += 100
        start = max(0, end - rng.choice((0, 5, rng.randint(0, 400))))
        name = rng.choice((b"a", b"a", b"b", b"c"))
        datagrams.append(heph_event(stream, numbers[stream], start, end, name=name))
        numbers[stream] += 1
    words = [heph_epoch(EPOCH), heph_session(1)] if announced else [heph_epoch(EPOCH)]
    goodbye = [heph_goodbye({str(stream): number for stream, number in numbers.items()})]
    last = goodbye if announced else datagrams[-3:]

    def stored(kept):
        log = Log()
        log.now = opened
        session = log.open(transport="udp")
        seen = [each for each in kept if each not in last]
        log.datagrams(session, [*words, *datagrams[: 0 if announced else 1], *seen, *last])
        log.tick(60)
        log.close(session)
        log.tick(60)
        return log

    return datagrams, stored


def jets(rng):
    lines, open_, clk = [], [], 0
    for number in range(1, rng.choice((10, 60))):
        clk += rng.randint(0, 40)
        if open_ and rng.random() < 0.4:
            ended = open_.pop(rng.randrange(len(open_)))
            lines.append({"clk": clk, "type": "record_end", "record_id": ended})
        name = rng.choice("aab")
        lines.append({"clk": clk, "type": "record", "name": name, "description": "", "record_type": "t",
                      "id": number, "parent_id": rng.choice([None, *open_]), "data": {}})  # fmt: skip
        open_.append(number)
        if rng.random() < 0.3:
            lines.append({"clk": clk, "type": "event", "name": "e", "description": "", "record_id": rng.choice(open_), "data": {}})  # fmt: skip
    for number in open_:
        if rng.random() < 0.8:
            clk += 1
            lines.append({"clk": clk, "type": "record_end", "record_id": number})
    kinds = [line["type"] for line in lines]
    head = {"type": "header", "version": "2.0", "metadata": {"clock_frequency_mhz": rng.choice((1000, None))}}  # fmt: skip
    foot = {"type": "footer", "capture_end_clk": clk, "total_records": kinds.count("record"),
            "total_annotations": 0, "total_events": kinds.count("event")}  # fmt: skip
    foot = [foot] if rng.random() < 0.8 else []

    def stored(kept):
        text = "".join(json.dumps(line) + "\n" for line in [head, *kept, *foot])
        return log_of_file("jets", text.encode(), "/runs/a")

    return lines, stored


def dftracer(rng):
    lines, clock = [], 0
    for number in range(2, rng.choice((10, 80))):
        clock += rng.randint(0, 30)
        name = rng.choice(("read", "write"))
        lines.append(
            dftracer_lines.event(
                number, name=name, ts=EPOCH // 1000 + clock, dur=rng.randint(0, 90)
            )
        )
    host = dftracer_lines.metadata("HH", "node", dftracer_lines.HOST)
    first = [host] if rng.random() < 0.1 else [host, dftracer_lines.start()]
    last = [] if rng.random() < 0.1 else [dftracer_lines.end(len(lines) + 2)]

    def stored(kept):
        return log_of_file("dftracer", dftracer_lines.text(*first, *kept, *last), "/runs/a.pfw")

    return lines, stored


METHODS = [("method_list", b"".join(b"%d,A,m%d\n" % (n, n) for n in range(21, 30)))]


def et3(rng):
    """Entries and exits of methods that call themselves."""
    lines, stack, clock = [], [], 2
    for _ in range(rng.choice((12, 80))):
        clock += 1
        if stack and rng.random() < 0.5:
            method = stack.pop()
            lines.append(f"E {method} {clock}\n")
        else:
            stack.append(rng.choice((21, 21, 22, 23)))
            lines.append(f"M {stack[-1]} 0 {clock}\n")
    begin, end = "M 28 0 1\nE 28 2\n", f"M 29 0 {clock + 1}\nE 29 {clock + 2}\n"

    def stored(kept):
        return log_of_file("et3", (begin + "".join(kept) + end).encode(), "/runs/a.et3", METHODS)

    return lines, stored


def ovni(rng):
    """Events of a thread, of which some are unreadable."""
    events, stack, clock = [], [], 10**9
    for _ in range(rng.choice((12, 60))):
        clock += rng.randint(1, 50)
        if stack and rng.random() < 0.5:
            code = {"V[": b"VS]", "Vh": b"VSf", "Va": b"VMA"}[stack.pop()]
        else:
            stack.append(rng.choice(("V[", "Vh", "Va")))
            code = {"V[": b"VS[", "Vh": b"VSh", "Va": b"VMa"}[stack[-1]]
        events.append(struct.pack("<B3sQ", 0, code, clock))
    ended = struct.pack("<B3sQ", 0, b"OHe", clock + 1)

    def stored(kept):
        whole = set(kept)
        body = b"".join(event if event in whole else b"\xff" * 12 for event in events)
        return log_of_file(
            "ovni", b"ovni" + struct.pack("<I", 1) + body + ended, "/runs/thread.1/stream.obs"
        )

    return events, stored


def keys_of(rng):
    places = ["source", "session", "stream", "format"]
    return rng.choice([["name"], ["name"], ["stream"], ["name", "stream"], ["session", "name"], [],
                       ["depth"], ["substream", "category"], [rng.choice(places), "name"]])  # fmt: skip


def windows(rng, rows):
    times = [row["time"] for row in rows if row["time"] is not None and row["kind"] == "span"]
    if not times or rng.random() < 0.4:
        return Window(Selection(streams=rng.choice([None, None, ("1",)])))
    ends = sorted(rng.choice(times) + rng.randint(-50, 50) for _ in range(2))
    since, until = (bound if rng.random() < 0.7 else None for bound in ends)
    return Window(Selection(), since, until)


def measured(views, rows, window, by):
    views.hold(rows)
    whole = completeness(views, window.scope)
    return whole, statistics(views, window, whole, parse(by), self_time=True)


def truths(each):
    return dict(zip(FIGURES, (each.ended, *each.seen[2:]), strict=True))


def two_sessions(kept, opened, *, since=None, until=None):
    """Return the rows of a session that lacks no event, and of an equal one, of which `kept` arrive; and the window."""
    log = Log()
    log.now = opened
    for number, arriving in ((1, range(20)), (2, kept)):
        events = [heph_event(1, at, 100 * at, 100 * at + 10) for at in arriving]
        session = log.open(transport="udp", peer=f"127.0.0.{number}:5")
        goodbye = heph_goodbye({"1": 20})
        log.datagrams(session, [heph_epoch(EPOCH), heph_session(number), *events, goodbye])
        log.tick(60)
        log.close(session)
    log.tick(60)
    return run(log.entries)[1], Window(Selection(), since, until)


@pytest.mark.parametrize(
    ("kept", "opened", "window", "most"),
    [
        (range(10, 20), EPOCH + 10**15, {"until": EPOCH + 900}, 18),
        (range(10, 20), EPOCH, {"until": EPOCH + 900}, 18),
        (range(10), EPOCH - 10**15, {"since": EPOCH + 1500}, 10),
        (range(10), EPOCH + 10**15, {"since": EPOCH + 1500}, 10),
    ],
)
def test_lost_events_may_lie_outside_of_the_times_of_those_that_were_seen(
    views, kept, opened, window, most
):
    """A gap is not excluded because the seen events of its session lie behind or before the range."""
    rows, window = two_sessions(kept, opened, **window)
    views.hold(rows)
    (figures,) = statistics(views, window, completeness(views, window.scope))
    assert figures.bounds["count"].high >= most


def test_self_time_is_at_least_that_of_the_lanes_that_lack_nothing(views):
    rows, window = two_sessions(range(10), EPOCH)
    (figures,) = measured(views, rows, window, ["name"])[1]
    assert (figures.self_time, figures.bounds["self"]) == (300, Interval(200, None))
    whole, lossy = sorted(
        measured(views, rows, window, ["session"])[1], key=lambda each: -each.total
    )
    assert (whole.bounds["self"], lossy.bounds["self"]) == (Interval(200, 200), Interval(0, None))


def contended(lost):
    """Return rows of a stream that two threads share, without one event: the second-last ended before the one it follows."""
    ends = [(0, 10), (20, 30), (960, 1000), (930, 945), (1000, 1010)]
    log = Log()
    session = log.open(transport="tcp")
    events = [heph_event(1, at, *each) for at, each in enumerate(ends) if at != lost]
    log.data(session, heph_epoch(EPOCH) + b"".join(events))
    log.close(session)
    return run(log.entries)[1]


def test_a_number_bounds_no_time_where_threads_share_a_stream(views):
    window = Window(Selection(), EPOCH + 950, None)
    views.hold(contended(2))
    (figures,) = statistics(views, window, completeness(views, window.scope))
    assert figures.bounds["count"] == Interval(1, 2)


@pytest.mark.parametrize("seed", range(ROUNDS))
@pytest.mark.parametrize("trace", [heph, jets, dftracer, et3, ovni], ids=lambda f: f.__name__)
def test_the_truth_lies_within_the_bounds(views, trace, seed):
    rng = random.Random(f"{trace.__name__} {seed}")
    pieces, stored = trace(rng)
    share = rng.choice((0, 0.02, 0.1, 0.4))
    lost = {index for index in range(len(pieces)) if rng.random() < share}
    if rng.random() < 0.3:  # one range of events, so that a window may lie within what is lost
        begin = rng.randrange(len(pieces))
        lost = set(range(len(pieces))[begin : begin + rng.randint(1, len(pieces))])
    lossless = run(stored(pieces).entries)[1]
    lossy = run(stored([p for index, p in enumerate(pieces) if index not in lost]).entries)[1]
    window, by = windows(rng, lossless), keys_of(rng)
    whole, figures = measured(views, lossless, window, by)
    truth = {(each.group, each.unit): truths(each) for each in figures}
    _, figures = measured(views, lossy, window, by)
    for each in figures:
        true = truth.get((each.group, each.unit), dict.fromkeys(FIGURES) | {"count": 0})
        for figure, interval in each.bounds.items():
            if true[figure] is None:
                continue
            assert interval is not None, figure
            assert interval.low is None or interval.low <= true[figure], figure
            assert interval.high is None or true[figure] <= interval.high, figure
            if whole.complete and not lost and trace is not jets:
                assert interval.is_point, figure
