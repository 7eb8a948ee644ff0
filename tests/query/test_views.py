"""Test what the views compute from the table: times, spans, gaps, sessions and streams."""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest
from hypothesis import example, given, settings, strategies as st

from tailrace.ingest.incarnation_rows import wall_times
from tailrace.query.engine import Engine
from tailrace.query.views import GAPS, VIEWS
from tailrace.store.presence import DirectoryLock
from tests.forms import examples
from tests.ingest.log import Log, heph_epoch, heph_event, run
from tests.query.memory import Views
from tests.query.tables import (
    DAY,
    SECOND,
    ask,
    clocked,
    gap,
    heal,
    later,
    make,
    row,
    session,
)  # fmt: skip

INT64 = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 2**63 - 1, 0, 1, -1])


@pytest.fixture(scope="module")
def views():
    return Views()


def test_the_documented_columns_are_those_of_the_views(tmp_path):
    engine = Engine(make(tmp_path, [row()]))
    engine.prepare_all()
    for view in VIEWS:
        described = engine.connection.execute(f"DESCRIBE {view.name}").fetchall()
        assert [(c.name, c.type) for c in view.columns] == [(d[0], d[1]) for d in described]
        assert all(c.meaning for c in view.columns)
        assert view.meaning


def test_events_are_all_rows_as_they_are_stored(tmp_path):
    rows = [
        row("span", seq=1, name="n", category="c", id=2, parent=3, start=4, end=5, time=6),
        row("gap", name="shed", day=later(1), source="other", attributes={"count": 1}),
        row("annotation", substream=7, attributes={"x": [1]}, offset=90),
    ]
    store = make(tmp_path, rows[:2], rows[2:])
    for r in rows:
        r.pop("wall")
    events = ask(
        store,
        "SELECT * EXCLUDE (wall, aligned), wall::VARCHAR AS wall FROM events"
        ' ORDER BY "offset", kind DESC',
    )
    assert [event.pop("wall") for event in events] == ["1970-01-01 00:00:00+00", None, None]
    assert events == [r | {"day": str(r["day"])} for r in rows]


# Time


def test_an_epoch_that_comes_late_gives_times_to_what_came_before(tmp_path):
    store = make(
        tmp_path,
        [row(start=5, offset=0), row(start=5, session="b", offset=0)],
        [session("epoch", clock="monotonic_ns", ticks_per_second=SECOND, epoch=100, offset=40)],
        [row(start=6, time=106, offset=63)],
    )
    times = ask(store, "SELECT session, start, time FROM events WHERE kind = 'span' ORDER BY ALL")
    assert [(t["session"], t["start"], t["time"]) for t in times] == [
        ("a", 5, 105), ("a", 6, 106), ("b", 5, None),
    ]  # fmt: skip


def test_a_later_word_about_the_clock_replaces_an_earlier_one(views):
    rows = [
        clocked(epoch=7, ticks_per_second=1000, offset=50),
        clocked(epoch=5, ticks_per_second=SECOND, offset=10),
        session("footer", epoch=9, ticks_per_second=3, clock="theirs", offset=90),
        row(start=2),
    ]
    (clock,) = views.of(rows, "SELECT clock, epoch, ticks_per_second FROM sessions")
    assert clock == {"clock": "clk", "epoch": 7, "ticks_per_second": 1000}
    (event,) = views.of(rows, "SELECT time FROM events WHERE kind = 'span'")
    assert event["time"] == 7 + 2_000_000


@examples(100)
@given(
    st.lists(INT64 | st.none(), min_size=1, max_size=20),
    INT64,
    st.sampled_from([1e9, 1.0, 3.0, 1e6, 2.5e9, 0.1, 1e17, 1 / 3]) | st.floats(1e-3, 1e12),
)
@example([-9_799_832_790], 792_283_136, 1.0625)  # beyond 64 bits, unless the epoch makes up for it
def test_the_views_compute_the_time_that_the_collector_would_have(views, starts, epoch, rate):
    rows = [row(start=start, offset=i) for i, start in enumerate(starts)]
    rows.append(clocked(epoch=epoch, ticks_per_second=rate))
    events = views.of(rows, "SELECT time FROM events WHERE kind = 'span' ORDER BY \"offset\"")
    assert [event["time"] for event in events] == wall_times(starts, epoch, rate)


def test_sessions_of_a_run_are_aligned_by_their_clocks_offsets(views):
    rows = [
        session("open", group="/run", transport="tail", peer="/run/a", opened=1),
        session("metadata", clock_offset=5, offset=8),
        session("metadata", clock_offset=-7, offset=9),
        session("footer", clock_offset=1000, offset=10),
        row("instant", start=10, offset=11),
        row("begin", id=1, start=20, offset=12),
        session("open", group="", session="b", opened=2),
        row("span", session="b", start=-(2**63), offset=13),
        row("instant", session="b", offset=14),
        session("restart", continues="a", group="/run", session="a.1", opened=3),
        session("metadata", clock_offset=-(2**63), session="a.1"),
        row("instant", session="a.1", start=-1, offset=15),
    ]
    rows = [each | {"format": "ovni"} for each in rows]
    events = views.of(
        rows, "SELECT start, aligned FROM events WHERE kind <> 'session' ORDER BY \"offset\""
    )
    assert [tuple(event.values()) for event in events] == [
        (10, 3), (20, 13), (-(2**63), -(2**63)), (None, None), (-1, None),
    ]  # fmt: skip
    spans = views.of(rows, "SELECT start, aligned FROM spans ORDER BY start DESC")
    assert [tuple(span.values()) for span in spans] == [(20, 13), (-(2**63), -(2**63))]
    sessions = views.of(
        rows, "SELECT session, run, clock_offset, peer, transport FROM sessions ORDER BY session"
    )
    assert [tuple(s.values()) for s in sessions] == [
        ("a", "/run", -7, "/run/a", "tail"),
        ("a.1", "/run", -(2**63), "/run/a", "tail"),
        ("b", None, None, None, None),
    ]


def test_every_time_is_a_timestamp_as_in_the_table(views):
    times = [-(2**63), -1999, -1, None, 0, 1999, 2**63 - 1]
    rows = [row(time=time, offset=i) for i, time in enumerate(times)]
    walls = views.of(rows, 'SELECT wall::VARCHAR AS wall FROM events ORDER BY "offset"')
    assert [wall["wall"] for wall in walls] == [
        "1677-09-21 00:12:43.145225+00", "1969-12-31 23:59:59.999999+00", "1970-01-01 00:00:00+00", None,
        "1970-01-01 00:00:00+00", "1970-01-01 00:00:00.000001+00", "2262-04-11 23:47:16.854775+00",
    ]  # fmt: skip


# Spans


def test_a_span_is_one_row_whether_it_ended_or_not(views):
    rows = [
        clocked(epoch=1000, ticks_per_second=500_000_000),
        row("begin", id=1, start=0, name="outer", attributes={"pc": 1}, offset=1),
        row("begin", id=2, parent=1, depth=1, start=2, name="inner", attributes={"pc": 2}, offset=2),
        row(
            "span", id=2, parent=1, depth=1, start=2, end=5, name="inner", attributes={"pc": 2},
            offset=2, end_offset=3,
        ),
        row("end", id=9, end=6, offset=4),
    ]  # fmt: skip
    spans = views.of(rows, "SELECT * EXCLUDE (wall) FROM spans ORDER BY id")
    keys = (
        "name",
        "parent",
        "depth",
        "start",
        "end",
        "open",
        "ticks",
        "duration",
        "time",
        "attributes",
    )
    assert [tuple(span[key] for key in keys) for span in spans] == [
        ("outer", None, None, 0, None, True, None, None, 1000, '{"pc": 1}'),
        ("inner", 1, 1, 2, 5, False, 3, 6, 1004, '{"pc": 2}'),
    ]
    assert [(span["offset"], span["end_offset"]) for span in spans] == [(1, None), (2, 3)]


def test_a_begin_is_seen_until_its_span_is(views):
    """Readers therefore see the same events, whenever the collector commits."""
    begin = row("begin", id=2, start=2, name="x", offset=2)
    span = row("span", id=2, start=2, end=5, name="x", offset=2, end_offset=3)
    elsewhere = row("span", session="b", id=2, start=2, end=5, name="x", offset=2, end_offset=3)
    kinds = "SELECT kind, session FROM events ORDER BY ALL"
    assert [tuple(e.values()) for e in views.of([begin, elsewhere], kinds)] == [
        ("begin", "a"), ("span", "b"),
    ]  # fmt: skip
    for rows in ([begin, span], [span]):
        assert views.of(rows, kinds) == [{"kind": "span", "session": "a"}]
        (session_,) = views.of(rows, "FROM sessions")
        assert (session_["rows"], session_["events"]) == (1, 1)


def test_a_time_that_no_column_can_hold_is_shown_as_it_was_given(views):
    """The time must not become a time before 1970."""
    log = Log()
    session = log.open()
    times = [(2**63 - 1, 2**63), (2**63, 2**64 - 1), (5, 6)]
    log.data(session, heph_epoch(7 * SECOND))
    for count, (start, end) in enumerate(times):
        log.data(session, heph_event(1, count, start, end))
    _, rows = run(log.entries)
    rows = [r | {"day": DAY} for r in rows]
    assert [r["time"] for r in rows if r["kind"] == "span"] == [None, None, 7 * SECOND + 5]
    spans = views.of(
        rows,
        'SELECT start, "end", ticks, time, wall::VARCHAR AS wall, attributes FROM spans ORDER BY seq',
    )
    assert [tuple(span.values()) for span in spans][:2] == [
        (2**63 - 1, None, None, None, None, f'{{"$flaw":"bad_time","$end":{2**63}}}'),
        (
            None,
            None,
            None,
            None,
            None,
            f'{{"$flaw":"bad_time","$start":{2**63},"$end":{2**64 - 1}}}',
        ),
    ]
    (stream,) = views.of(
        rows, "SELECT first_time, last_time, events FROM streams WHERE stream = '1'"
    )
    assert stream == {"first_time": 7 * SECOND + 5, "last_time": 7 * SECOND + 5, "events": 3}


def test_a_session_that_another_one_stands_for_is_shown_no_more(views):
    """While the session that replaces it is not whole, the replacing session is hidden instead. Restarts of a session
    are hidden with it.
    """
    rows = [
        session("open", session="a"), row(id=1), row(id=2, session="a.1"),
        gap(3, 5, stream="1"), session("close", session="a.1", closed="end of file", file={}),
        session("open", session="b", replaces=["a"]), row(id=1, session="b"), row(id=3, session="b.1"),
        session("close", session="b", closed="restart: header"), row(id=4, session="aa"),
    ]  # fmt: skip

    def shown(rows):
        found = views.of(rows, "SELECT DISTINCT session FROM events ORDER BY ALL")
        assert views.of(rows, "SELECT session FROM sessions ORDER BY ALL") == found
        lost = views.of(rows, "SELECT coalesce(sum(missing), 0)::INT AS missing FROM sessions")
        return [row["session"] for row in found], lost[0]["missing"]

    assert shown(rows) == (["a", "a.1", "aa"], 3)
    rows.append(session("close", session="b.1", closed="unreadable", file={}))
    assert shown(rows) == (["a", "a.1", "aa"], 3)
    rows[-1] = session("close", session="b.1", closed="end of file", file={})
    assert shown(rows) == (["aa", "b", "b.1"], 0)
    rows += [
        session("open", session="c", replaces=["b"]), row(id=5, session="c"),
        session("close", session="c", closed="end of file", file={}),
    ]  # fmt: skip
    assert shown(rows) == (["aa", "c"], 0)


def rests(name, path, size=500, **words):
    """Return the rows of a session that has read a file to its end, with one event in it."""
    file = {"path": path, "size": size, "crc": 7} | words.pop("file", {})
    yield session("open", session=name, **words.pop("opened", {}))
    yield row(session=name, offset=1)
    about = {"rest": "silent", "file": file} | words
    yield session("rest", session=name, offset=size, **about) | {"time": 100}


@pytest.mark.parametrize(("size", "shown"), [(400, "a"), (500, "b"), (600, "b")])
def test_a_replacing_session_that_a_collector_follows_is_shown_once_it_has_as_much(
    views, size, shown
):
    """`serve --rest` was killed while it read a grown file again, and `serve` goes on with its session."""
    rows = [
        *rests("a", "/a", closed="at rest"),
        *rests("b", "/a", size, opened={"replaces": ["a"]}),
    ]
    assert views.of(rows, "SELECT session FROM sessions") == [{"session": shown}]
    rows.append(session("rest", session="b", offset=size, rest="") | {"time": 200})
    assert views.of(rows, "SELECT session FROM sessions") == [{"session": shown}]


COPIES = [
    # Each case: how the session of a second file differs from a session whose file rests with 500 bytes, and whether
    # the second file is a copy.
    ({}, True),
    ({"size": 501}, False),
    ({"file": {"crc": 8}}, False),
    ({"file": {"crc": None}}, False),
    ({"file": {"documents": {"stream.json": 1}}}, False),
    ({"pending": 3}, False),
    ({"file": {"path": "/a"}}, False),
    ({"opened": {"rank": 3}}, False),
    ({"closed": "deleted"}, True),
    ({"closed": "at rest"}, True),
    ({"closed": "end of file"}, False),
    ({"closed": "truncated"}, False),
    ({"closed": "rewritten"}, False),
    ({"closed": "replaced"}, False),
]


@pytest.mark.parametrize(("words", "is_copy"), COPIES)
def test_a_followed_file_that_rests_with_the_content_of_another_one_is_a_copy(
    views, words, is_copy
):
    rows = [*rests("a", "/a"), *rests("b", "/b", **words)]
    found = views.of(rows, "SELECT session, events, copies FROM sessions ORDER BY session")
    assert views.of(rows, "SELECT count(*) AS n FROM spans") == [{"n": 2 - is_copy}]
    alone = {"session": "b", "events": 1, "copies": None}
    first = {"session": "a", "events": 1, "copies": '["/b"]' if is_copy else None}
    assert found == [first] + [alone] * (not is_copy)


@pytest.mark.parametrize("name", "ab")
def test_a_copy_that_grows_on_is_a_file_of_its_own(views, name):
    """This holds for both of the files. If several files are copies of one another, the first one counts as the
    original.
    """
    rows = [*rests("a", "/a"), *rests("b", "/b"), *rests("c", "/c")]
    copies = "SELECT session, copies FROM sessions ORDER BY session"
    assert views.of(rows, copies) == [{"session": "a", "copies": '["/b","/c"]'}]
    rows.append(session("rest", session=name, offset=500, rest="") | {"time": 200})
    first = "b" if name == "a" else "a"
    shown = {name: None, first: '["/c"]'}
    assert {each["session"]: each["copies"] for each in views.of(rows, copies)} == shown


@pytest.mark.parametrize(("hidden", "shown"), ["ab", "ba"])
def test_of_two_equal_files_one_is_shown_whichever_the_collector_reported(views, hidden, shown):
    """Ids of sessions that were opened within a millisecond have any order."""
    file = {"copied_in": [shown]}
    rows = [*rests(hidden, f"/{hidden}", file=file), *rests(shown, f"/{shown}")]
    found = views.of(rows, "SELECT session, copies FROM sessions")
    assert found == [{"session": shown, "copies": f'["/{hidden}"]'}]


def test_a_second_run_at_the_first_path_is_no_copy(views):
    """Two sessions have read the copy of the first file at /q. Its path is listed once."""
    rows = [
        row
        for name, path in zip("abcd", ["/p", "/q"] * 2, strict=True)
        for row in rests(name, path)
    ]
    found = views.of(rows, "SELECT session, copies FROM sessions ORDER BY session")
    assert found == [{"session": "a", "copies": '["/q"]'}, {"session": "c", "copies": None}]


@pytest.mark.parametrize(("gone", "shown"), [("", "a"), ("a", "b"), ("b", "a"), ("ab", "ab")])
def test_a_file_whose_first_days_are_deleted_hides_no_other(views, gone, shown):
    rows = []
    for name in "ab":
        opened, event, rest = rests(name, f"/{name}")
        rows += [rest] if name in gone else [opened, event, rest]
    found = views.of(rows, "SELECT session FROM sessions ORDER BY session")
    assert [each["session"] for each in found] == list(shown)


LOST = [
    {"detail": "bad_member", "size": 5000, "data": bytes(5000)},
    {"detail": "torn_member", "size": 0},
    {"detail": "unread", "size": 70},
    {"detail": "overwritten", "size": 20},
    {"detail": "hole", "size": 4096},
]


@pytest.mark.parametrize("loss", LOST, ids=lambda loss: loss["detail"])
@pytest.mark.parametrize("losing", [[0], [1], [0, 1], []])
@pytest.mark.parametrize("end", ["stop", "deleted"])
def test_a_file_of_which_bytes_are_lost_neither_hides_another_nor_is_hidden(
    views, loss, losing, end
):
    """Size and checksum of a file leave out the lost bytes, so that they do not identify the content."""
    log = Log()
    files = [log.open_file("heph", path) for path in ("/runs/a", "/copies/a")]
    for file in files:
        log.data(file, b"".join(heph_event(1, count) for count in range(9)))
    for index in losing:
        log.loss(files[index], **loss)
    if end == "deleted":
        for file in files:
            log.close(file, end)
    log.stop()
    rows = [each | {"day": DAY} for each in run(log.entries)[1]]
    found = views.of(rows, "SELECT sum(events)::INT AS n, list(copies) AS copies FROM sessions")
    copies = [None, None] if losing else ['["/copies/a"]']
    assert found == [{"n": 18 if losing else 9, "copies": copies}]
    gaps = views.of(rows, "SELECT detail FROM gaps")
    assert [gap["detail"] for gap in gaps].count(loss["detail"]) == len(losing)


@pytest.mark.parametrize("name", "ab")
def test_a_file_whose_record_gave_way_neither_hides_another_nor_is_hidden(views, name):
    rows = [*rests("a", "/a"), *rests("b", "/b"), session("gave_way", session=name, bytes=9)]
    assert views.of(rows, "SELECT count(*) AS n FROM spans") == [{"n": 2}]


@pytest.mark.parametrize(("lacks", "is_copy"), [("", True), ("no_end", False), (None, False)])
def test_a_file_that_is_hardly_more_than_a_header_is_a_copy_once_it_has_ended(
    views, lacks, is_copy
):
    """The files of ranks begin alike, and all ranks may be killed after the header."""
    words = {"size": 255, "lacks": lacks}
    rows = [*rests("a", "/a", **words), *rests("b", "/b", **words)]
    assert views.of(rows, "SELECT count(*) AS n FROM sessions") == [{"n": 2 - is_copy}]


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.sampled_from(["begin", "span"]), st.sampled_from("ab"),
                          st.integers(1, 2), st.integers(0, 2)), max_size=12))  # fmt: skip
def test_a_span_supersedes_the_begins_at_its_place_and_no_others(views, marks):
    rows = [
        row(kind, session=session_, id=id_, start=5, end=9, offset=place, attributes={"n": i})
        for i, (kind, session_, id_, place) in enumerate(marks)
    ]
    spans = views.of(rows, "SELECT open, (attributes ->> '$.n')::INTEGER AS n FROM spans")
    closed = [span["n"] for span in spans if not span["open"]]
    assert sorted(closed) == [i for i, mark in enumerate(marks) if mark[0] == "span"]
    ended = {(mark[1], mark[3]) for mark in marks if mark[0] == "span"}
    assert sorted(span["n"] for span in spans if span["open"]) == [
        i for i, mark in enumerate(marks) if mark[0] == "begin" and (mark[1], mark[3]) not in ended
    ]


def test_a_name_that_comes_late_is_filled_in(views):
    rows = [
        row(id=7, offset=0),
        row(id=7, session="b", offset=0),
        row(id=8, name="own", offset=1),
        row("name", stream="", id=7, name="first", offset=2),
        row("name", stream="", id=7, name="resolved", offset=3),
        row("name", stream="", id=8, name="other", offset=4),
    ]
    for view in ("spans", "events"):
        where = "" if view == "spans" else "WHERE kind = 'span'"
        named = views.of(rows, f"FROM {view} SELECT session, id, name {where} ORDER BY ALL")
        assert [tuple(n.values()) for n in named] == [
            ("a", 7, "resolved"), ("a", 8, "own"), ("b", 7, None),
        ]  # fmt: skip


# Gaps


def test_gaps_at_one_place_come_in_one_order(views):
    found = [
        told(count, detail, reason=reason, stream="")
        for reason in ("truncated", "late_join")
        for detail in ("no_start", "no_end")
        for count in (0, 3)
    ]
    asked = f"SELECT reason, detail, remaining FROM gaps ORDER BY {GAPS.order}"  # noqa: S608 - our own words
    shown = [views.of(rows, asked) for rows in (found, found[::-1], found[3:] + found[:3])]
    assert len(shown[0]) == 8
    assert shown[0] == shown[1] == shown[2]


def told(count, detail, **values):
    return gap(count, attributes={"count": count, "detail": detail}, **values)


def test_a_heal_repays_the_same_one_of_two_gaps_at_one_place(views):
    found = [told(3, "a", stream=""), told(5, "b", stream="")]
    asked = "SELECT detail, remaining FROM gaps ORDER BY detail"
    shown = [
        views.of([*rows, heal(4, stream="", offset=9)], asked) for rows in (found, found[::-1])
    ]
    assert shown[0] == shown[1] == [{"detail": "b", "remaining": 4}]


def test_what_came_after_all_is_taken_off_its_gap(views):
    rows = [
        gap(5, 10), gap(3, 20, offset=1), gap(2, 30, offset=2), gap(4, 10, stream="2"),
        heal(1, 12, offset=3), heal(2, 20, offset=4), heal(1, 22, offset=5),
        heal(1, 10, reason="late_join", offset=6),
    ]  # fmt: skip
    columns = "stream, first, last, count, healed, remaining"
    gaps = views.of(rows, f"FROM gaps SELECT {columns} ORDER BY ALL")
    assert [tuple(g.values()) for g in gaps] == [
        ("1", 10, 14, 5, 1, 4), ("1", 30, 31, 2, 0, 2), ("2", 10, 13, 4, 0, 4),
    ]  # fmt: skip
    (healed,) = views.of(rows, f"FROM all_gaps SELECT {columns} WHERE remaining = 0")
    assert tuple(healed.values()) == ("1", 20, 22, 3, 3, 0)


def test_a_healed_gap_of_unknown_size_leaves_no_stream_behind(views):
    rows = [row(), gap(0, reason="late_join", stream="")]
    assert len(views.of(rows, "FROM streams")) == 2
    rows.append(heal(0, reason="late_join", stream="", offset=1))
    assert [r["completeness"] for r in views.of(rows, "FROM streams")] == [1.0]


def test_a_heal_beyond_its_gap_counts_as_far_as_the_gap_goes(views):
    rows = [gap(5, 10), heal(4, 13, offset=1), heal(9, 100, offset=2)]
    (left,) = views.of(rows, "SELECT healed, remaining FROM gaps")
    assert left == {"healed": 2, "remaining": 3}


def test_a_row_over_a_range_is_repaid_by_any_of_its_numbers(views):
    over = {"count": 5, "of_range": True, "last": 30}
    rows = [
        row("gap", name="network", seq=10, missing=5, attributes=over), gap(2, 31, offset=1),
        heal(1, 28, offset=2), heal(1, 10, offset=3), heal(1, 32, offset=4),
    ]  # fmt: skip
    gaps = views.of(rows, "SELECT first, last, count, remaining FROM gaps ORDER BY first")
    assert [tuple(g.values()) for g in gaps] == [(10, 30, 5, 3), (31, 32, 2, 1)]


def test_gaps_without_numbers_are_repaid_from_the_oldest_on(views):
    rows = [
        gap(4, offset=1), gap(3, offset=2), gap(5, reason="kernel", offset=3), heal(5, offset=4),
        gap(1, reason="unresolved", id=77, offset=5), gap(1, reason="unresolved", id=78, offset=6),
        heal(1, reason="unresolved", id=78, offset=7),
    ]  # fmt: skip
    gaps = views.of(rows, 'SELECT reason, id, count, remaining FROM gaps ORDER BY "offset"')
    assert [tuple(g.values()) for g in gaps] == [
        ("network", None, 3, 2), ("kernel", None, 5, 5), ("unresolved", 77, 1, 1),
    ]  # fmt: skip


def test_kinds_of_missing_records_are_repaid_apart(views):
    def totals(kind, of, count, offset):
        about = {"count": count, "of": of}
        return row(kind, name="network", missing=count, attributes=about, offset=offset)

    rows = [
        totals("gap", "begin", 2, 1), totals("gap", "instant", 2, 2),
        totals("heal", "instant", 1, 3),
    ]  # fmt: skip
    gaps = views.of(rows, 'SELECT "of", remaining FROM gaps ORDER BY ALL')
    assert [tuple(g.values()) for g in gaps] == [("begin", 2), ("instant", 1)]


def test_an_unknown_amount_is_a_gap_and_no_number(views):
    rows = [row(seq=0), gap(0, reason="malformed"), gap(2, 4, offset=1)]
    (unknown,) = views.of(rows, "SELECT * FROM gaps WHERE reason = 'malformed'")
    assert (unknown["count"], unknown["remaining"], unknown["healed"]) == (None, None, 0)
    (stream,) = views.of(rows, "SELECT events, missing, completeness FROM streams")
    assert stream == {"events": 1, "missing": 2, "completeness": None}
    (session_,) = views.of(rows, "SELECT missing, unknown FROM sessions")
    assert session_ == {"missing": 2, "unknown": True}


def test_an_amount_of_none_is_known(views):
    """The gaps are pieces of an unreadable line. Only the first piece counts as a missing event."""
    rows = [row(seq=0), gap(1, reason="malformed"), gap(0, reason="malformed", missing=0, offset=1)]
    gaps = views.of(rows, 'SELECT "count", remaining FROM all_gaps ORDER BY "offset"')
    assert [tuple(each.values()) for each in gaps] == [(1, 1), (0, 0)]
    assert views.of(rows, "SELECT remaining FROM gaps") == [{"remaining": 1}]
    (session_,) = views.of(rows, "SELECT missing, unknown FROM sessions")
    assert session_ == {"missing": 1, "unknown": False}


def test_a_gap_says_how_it_is_known(views):
    rows = [
        row("gap", name="truncated", attributes={"count": 0, "detail": "stale_tail"}),
        row("gap", name="network", attributes={"count": 2, "detail": ["odd"]}, offset=1),
        gap(3, offset=2),
    ]
    for view in ("gaps", "all_gaps"):
        gaps = views.of(rows, f'FROM {view} SELECT reason, detail ORDER BY "offset"')
        assert [tuple(g.values()) for g in gaps] == [
            ("truncated", "stale_tail"), ("network", '["odd"]'), ("network", None),
        ]  # fmt: skip


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_gaps_and_heals_add_up_for_any_history(views, data):
    """As the ledger writes them, gaps never overlap, and each heal lies in one gap."""
    rows, missing = [], {}
    for stream in ("1", "2"):
        first = 0
        for _ in range(data.draw(st.integers(0, 4))):
            first += data.draw(st.integers(0, 5))
            count = data.draw(st.integers(1, 6))
            reason = data.draw(st.sampled_from(["network", "late_join"]))
            numbers = range(first, first + count)
            rows.append(gap(count, first, reason, stream=stream, offset=len(rows)))
            healed = data.draw(st.sets(st.sampled_from(numbers)))
            for number in healed:
                rows.append(heal(1, number, reason, stream=stream, offset=len(rows)))
            left = set(numbers) - healed
            if left:
                missing[stream, first, reason] = len(left)
            first += count
    rows = data.draw(st.permutations(rows))
    gaps = views.of(rows, "SELECT stream, first, reason, remaining FROM gaps")
    assert {(g["stream"], g["first"], g["reason"]): g["remaining"] for g in gaps} == missing
    streams = views.of(rows, "SELECT stream, missing FROM streams WHERE missing > 0")
    totals = {}
    for (stream, _, _), count in missing.items():
        totals[stream] = totals.get(stream, 0) + count
    assert {s["stream"]: s["missing"] for s in streams} == totals


# Sessions and streams


def test_a_session_is_all_that_was_said_of_it(views):
    rows = [
        session("open", peer="10.0.0.1:5", transport="tcp", opened=50),
        clocked(epoch=1, producer={"name": "gpu", "version": "1"}, offset=10),
        session("hostname", value='node "7"', offset=20),
        session("header", producer={"version": "2"}, offset=30),
        row(start=1, offset=40),
        gap(3, offset=41),
        session("footer", totals={"begin": 4}, closed="no", peer="no", offset=60),
        session("close", closed="eof", closed_at=99, offset=60),
        session("restart", continues="a", opened=99, session="a.1", offset=60),
    ]
    rows = [each | {"format": "jets"} for each in rows]
    first, second = views.of(rows, "SELECT * FROM sessions ORDER BY session")
    producer = json.loads(first.pop("producer"))
    assert producer == {"name": "gpu", "version": "2", "hostname": 'node "7"'}
    assert first == {
        "source": "sim", "format": "jets", "session": "a", "opened": 50, "closed": "eof",
        "closed_at": 99, "continues": None, "peer": "10.0.0.1:5", "transport": "tcp", "run": None,
        "rank": None, "node": None, "job": None, "clock": "clk", "ticks_per_second": 1e9, "epoch": 1, "clock_offset": None,
        "totals": '{"begin":4}', "rows": 8,
        "events": 1, "missing": 3, "unknown": False, "state": "ended", "copies": None,
    }  # fmt: skip
    assert (second["session"], second["continues"], second["opened"]) == ("a.1", "a", 99)
    assert (second["peer"], second["transport"], second["closed"]) == ("10.0.0.1:5", "tcp", None)
    assert (second["rows"], second["events"], second["missing"]) == (1, 0, 0)


def _thread(name, *words, **values):
    """Return the rows of an ovni session with one event, and with more session rows at its end."""
    mine = {"session": name, "format": "ovni"}
    yield session("open", ends=f"a/1/{name}", opened=1, **mine)
    yield row(stream=f"a/1/{name}", start=1, time=50, offset=8, **mine)
    for at, word in enumerate(words):
        yield session(word.pop("name"), offset=20, **word, **mine) | {"time": 100 + at}


REST = {"name": "rest", "rest": "silent", "since": 60, "lacks": "unfinished"}
ON = {"name": "rest", "rest": "", "since": 61, "lacks": "unfinished"}
CLOSE = {"name": "close", "closed": "deleted", "closed_at": 70}

COURSES = [
    # Each case: the session rows, the state of the session while a collector uses the store, and its state while none
    # does.
    ([], "open", "unfinished?"),
    ([REST], "unfinished?", "unfinished?"),
    ([REST | {"rest": "process_gone"}], "unfinished?", "unfinished?"),
    ([REST | {"rest": "waits"}], "silent", "unfinished?"),
    ([REST, ON], "open", "unfinished?"),
    ([REST, ON, REST], "unfinished?", "unfinished?"),
    ([REST | {"lacks": ""}], "ended", "ended"),
    ([REST | {"rest": "ended", "lacks": ""}], "ended", "ended"),
    ([REST | {"lacks": "", "pending": 3}], "unfinished?", "unfinished?"),
    (
        [REST | {"rest": "stopped", "pending": 3}, ON | {"lacks": "", "pending": 3}],
        "open",
        "unfinished?",
    ),
    ([REST | {"rest": "stopped", "pending": 3}, ON | {"lacks": ""}], "open", "unwatched"),
    ([ON], "open", "unfinished?"),
    ([ON, ON | {"lacks": ""}], "open", "unwatched"),
    ([REST | {"rest": "unfollowed"}], "unfollowed", "unfollowed"),
    ([REST | {"rest": "unfollowed", "lacks": ""}], "ended", "ended"),
    ([REST, CLOSE], "ended", "ended"),
    ([CLOSE], "ended", "ended"),
]


@pytest.mark.parametrize("watched", [True, False], ids=["watched", "unwatched"])
def test_a_stream_that_says_its_end_is_doubtful_until_it_has(tmp_path, watched):
    rows = [
        each
        for number, (words, *_) in enumerate(COURSES)
        for each in _thread(str(number), *map(dict, words))
    ]
    store = make(tmp_path, rows)
    with DirectoryLock(tmp_path) if watched else nullcontext():
        streams = ask(store, "SELECT * FROM streams ORDER BY session::INT")
        sessions = ask(store, "SELECT session, state, unknown FROM sessions ORDER BY session::INT")
        gaps = ask(store, "SELECT * FROM gaps")
    states = [at if watched else alone for _, at, alone in COURSES]
    doubtful = {str(n) for n, state in enumerate(states) if state.startswith("unf")}
    assert [s["state"] for s in streams] == [s["state"] for s in sessions] == states
    assert {s["session"] for s in streams if s["completeness"] is None} == doubtful
    assert {s["session"] for s in sessions if s["unknown"] == "true"} == doubtful
    assert {g["session"] for g in gaps} == doubtful
    for gap_ in gaps:
        assert gap_["stream"] == f"a/1/{gap_['session']}"
        assert (gap_["reason"], gap_["detail"]) == ("truncated", states[int(gap_["session"])])
        assert gap_["count"] is gap_["remaining"] is None
    since = [s["silent_since"] for s in streams]
    rests = [bool(words) and bool(words[-1].get("rest")) for words, *_ in COURSES]
    assert since == [
        None if state == "ended" else 60 if rest else 50
        for rest, state in zip(rests, states, strict=True)
    ]


@pytest.mark.parametrize("watched", [True, False], ids=["watched", "unwatched"])
def test_a_stream_without_an_end_is_silent_or_unwatched_and_claims_nothing(tmp_path, watched):
    rows = [
        session("open", opened=1), row(offset=3),
        session("open", opened=1, session="b"), row(offset=3, session="b"),
        session("rest", rest="silent", since=9, session="b", offset=9),
    ]  # fmt: skip
    store = make(tmp_path, rows)
    with DirectoryLock(tmp_path) if watched else nullcontext():
        streams = ask(store, "SELECT state, completeness FROM streams ORDER BY session")
    states = ["open", "silent"] if watched else ["unwatched", "unwatched"]
    assert streams == [{"state": state, "completeness": 1.0} for state in states]


def test_a_session_is_watched_by_the_collector_that_took_it_up_last(tmp_path):
    """Collectors `main` and `c` run on the store. `b` does not run, and `d` was given up."""
    rows = [
        session("open", session="main"), row(offset=1, session="main"),
        session("open", session="b", collector="b"), row(offset=1, session="b"),
        session("open", session="c", collector="c"), row(offset=1, session="c"),
        session("open", session="d", collector="d"), row(offset=1, session="d"),
        session("open", session="to b") | {"time": 1}, row(offset=1, session="to b"),
        session("resume", session="to b", collector="b", offset=2) | {"time": 2},
        session("open", session="from b", collector="b") | {"time": 1}, row(offset=1, session="from b"),
        session("resume", session="from b", offset=2) | {"time": 2},
        session("restart", session="b.1", continues="b", collector="b"), row(offset=1, session="b.1"),
        row(offset=1, session="nobody's"),
        *_thread("thread of b", {"name": "resume", "collector": "b"}),
    ]  # fmt: skip
    store = make(tmp_path, rows)
    for name in "bc":
        (tmp_path / "collectors" / name).mkdir(parents=True)
    expected = {
        "main": "open", "b": "unwatched", "c": "open", "d": "unwatched", "to b": "unwatched",
        "from b": "open", "b.1": "unwatched", "nobody's": "open", "thread of b": "unfinished?",
    }  # fmt: skip
    with DirectoryLock(tmp_path), DirectoryLock(tmp_path / "collectors" / "c"):
        found = {s["session"]: s["state"] for s in ask(store, "SELECT session, state FROM streams")}
        assert found == expected
        sessions = ask(store, "SELECT session, state FROM sessions")
        assert {s["session"]: s["state"] for s in sessions} == expected
    alone = {s["state"] for s in ask(store, "SELECT state FROM streams")}
    assert alone == {"unwatched", "unfinished?"}


def test_a_snapshot_sees_that_its_collector_was_killed(tmp_path):
    """Such a collector writes no version of the table."""
    make(tmp_path, list(_thread("0")))
    states = "SELECT state, completeness FROM streams"
    with DirectoryLock(tmp_path):
        engine = Engine(str(tmp_path))
        assert list(engine.rows(states)) == [("open", 1.0)]
    assert not engine.refresh()
    assert list(engine.rows(states)) == [("unfinished?", None)]
    with DirectoryLock(tmp_path):
        assert not engine.refresh()
        assert list(engine.rows(states)) == [("open", 1.0)]


def test_a_stream_says_how_far_it_got_and_how_complete_it_is(views):
    rows = [
        clocked(epoch=1000),
        row(seq=3, start=5, end=9, time=1005, offset=1),
        row("instant", seq=7, start=1, time=1001, offset=2),
        row("counter", seq=8, start=20, offset=3),
        gap(3, 4, offset=4), heal(1, 5, offset=5),
        row("begin", stream="2", id=1, start=3, offset=6),
        row("begin", stream="2", id=2, start=4, offset=7),
        row("span", stream="2", id=1, start=3, end=5, offset=6, end_offset=8),
        row("end", stream="2", id=5, end=6, offset=9),
        gap(7, stream="3", offset=10),
    ]  # fmt: skip
    one, two, three = views.of(
        rows, "SELECT * EXCLUDE (source, format, session) FROM streams ORDER BY stream"
    )
    assert one == {
        "stream": "1", "first_seq": 3, "last_seq": 8, "events": 3, "missing": 2,
        "completeness": 0.6, "first_time": 1001, "last_time": 1020, "open_spans": 0,
        "state": "open", "silent_since": 1020,
    }  # fmt: skip
    assert two == {
        "stream": "2", "first_seq": None, "last_seq": None, "events": 2, "missing": 0,
        "completeness": 1.0, "first_time": 1003, "last_time": 1004, "open_spans": 1,
        "state": "open", "silent_since": 1004,
    }  # fmt: skip
    assert (three["events"], three["missing"], three["completeness"]) == (0, 7, 0.0)


def completeness(views, rows):
    found = views.of(rows, "SELECT session, stream, completeness FROM streams ORDER BY ALL")
    return {(s["session"], s["stream"]): s["completeness"] for s in found}


def test_what_a_session_misses_of_no_known_stream_may_be_any_streams(views):
    """A stream is not affected if the numbers of its own events show that it lacks nothing."""
    rows = [
        *(row(stream="7/1", offset=i) for i in range(6)),
        row(stream="7/2", offset=6),
        gap(1, stream="7/2", offset=7),
        row(stream="numbered", seq=1, offset=8),
        gap(2, stream="", offset=9),
        row(stream="7/1", session="b", offset=10),
    ]
    assert completeness(views, rows) == {
        ("a", ""): 0.0, ("a", "7/1"): 6 / 8, ("a", "7/2"): 1 / 4, ("a", "numbered"): 1.0,
        ("b", "7/1"): 1.0,
    }  # fmt: skip
    unknown = completeness(views, [*rows, gap(0, stream="", offset=11)])
    assert unknown == {
        ("a", ""): None, ("a", "7/1"): None, ("a", "7/2"): None, ("a", "numbered"): 1.0,
        ("b", "7/1"): 1.0,
    }  # fmt: skip
    healed = completeness(views, [*rows, heal(2, stream="", offset=12)])
    assert healed["a", "7/1"] == 1.0
    missing = views.of(rows, "SELECT stream, missing FROM streams WHERE missing > 0 ORDER BY ALL")
    assert [tuple(s.values()) for s in missing] == [("", 2), ("7/2", 1)]


def test_a_session_that_is_one_stream_misses_its_own(views):
    rows = [*(row(stream="", offset=i) for i in range(3)), gap(1, stream="", offset=3)]
    assert completeness(views, rows) == {("a", ""): 0.75}


def test_the_machines_own_rows_are_understood(views):
    """The test has the collector's own rows for two producers with a hole each. One of the producers restarts."""
    log = Log()
    first = log.open()
    log.data(first, heph_event(1, 0) + heph_event(1, 3) + heph_epoch(5 * SECOND) + heph_event(1, 4))
    second = log.open(source="other", transport="udp")
    log.datagrams(second, [heph_epoch(7), heph_event(2, 0), heph_epoch(8), heph_event(2, 0)])
    log.tick(60)
    log.data(first, heph_event(1, 1))
    log.close(first)
    ingest, rows = run(log.entries)
    sessions = views.of([r | {"day": DAY} for r in rows], "SELECT * FROM sessions ORDER BY ALL")
    assert [s["source"] for s in sessions] == ["other", "other", "s"]
    for source in ("s", "other"):
        account = ingest.account(source)
        mine = [s for s in sessions if s["source"] == source]
        assert sum(s["events"] for s in mine) == account.seen - account.duplicates
        assert sum(s["missing"] for s in mine) == account.missing
    assert [s["epoch"] for s in sessions] == [7, 8, 5 * SECOND]
    assert {s["peer"] for s in sessions} == {"127.0.0.1:5"}
    assert [s["closed"] for s in sessions] == ["restart: epoch", None, "eof"]


# Any rows


def any_row():
    text = st.text(max_size=3) | st.sampled_from(["", "'\"\\", "\x00\x1b[2J", "a" * 9])
    words = st.dictionaries(
        st.sampled_from(
            ["count", "of", "clock", "epoch", "ticks_per_second", "producer", "value", "totals",
             "opened", "closed", "closed_at", "continues", "group", "clock_offset", "detail",
             "$name", "$late", "$key", "$scope"]
        ),
        INT64 | st.floats() | text | st.none() | st.just({"a": 1}) | st.lists(st.just(2**64))
        | st.sampled_from(["group", "source"])
        | st.dictionaries(text | st.sampled_from(["$late", "$name"]), text | st.none(), max_size=2),
        max_size=4,
    )  # fmt: skip
    attributes = st.none() | text | words.map(json.dumps)
    kinds = ["span", "begin", "end", "instant", "counter", "annotation", "name", "session", "gap"]
    return st.builds(
        row,
        st.sampled_from([*kinds, "heal"]),
        session=st.sampled_from(["a", "a.1"]),
        stream=st.sampled_from(["", "1", "x"]),
        attributes=attributes,
        offset=INT64,
        name=st.none() | st.sampled_from(["network", "close", "open", "footer"]) | text,
        category=st.none() | text,
        **dict.fromkeys(["substream", "seq", "id", "parent", "start", "end", "time"], INT64 | st.none()),
    )  # fmt: skip


ODD_NAMES = [
    row(
        "name", name="x", attributes={"$key": "k", "$scope": scope}, session=session_, source=source
    )
    for scope in ("group", "source", 5)
    for session_, source in [("a", "sim"), ("a\x00sim", "s"), ("", "s\x00a")]
] + [
    session("open", group="/a\x00b", opened="x"),
    session("open", group="/a", opened=-(2**63), session="a\x00sim"),
    row(attributes='{"$name":"k","$late":{"":"k","a":null,"b":{"c":"k"},"$late":"k","a":"k"}}'),
    row(attributes='{"$name":"k","$late":{"a":"k"}, "$late":{"a":"k"},"$name":1}'),
    row(attributes='{"$name":"k","x":' + "[" * 3000 + "]" * 3000 + "}"),
    row(attributes='["$name","$late"]'),
    row(attributes='{"$name":"k","$late":{"\\u0000":"k"}}'),
]
LARGEST = [gap(2**63 - 1, 2**63 - 1), gap(2**63 - 1, offset=1), gap(2**63 - 1, offset=2), row()]


@settings(deadline=None, max_examples=10)
@given(st.lists(any_row(), max_size=10))
@example(LARGEST)
@example(ODD_NAMES)
def test_no_row_makes_a_view_fail(views, rows):
    all_views_work(views, rows)


@pytest.mark.slow
@settings(deadline=None, max_examples=1000)
@given(st.lists(any_row(), max_size=10))
def test_no_row_at_all_makes_a_view_fail(views, rows):
    all_views_work(views, rows)


def all_views_work(views, rows):
    for view in [*(view.name for view in VIEWS), "all_gaps"]:
        views.of(rows, f"FROM {view} SELECT COLUMNS(*)::VARCHAR")
    sums = "SELECT coalesce(sum(events), 0) AS events, coalesce(sum(missing), 0) AS missing"
    (streams,) = views.of(rows, f"{sums} FROM streams")
    (sessions,) = views.of(rows, f"{sums} FROM sessions")
    assert streams["events"] == sessions["events"]
    assert min(streams["missing"], 2**63 - 1) == min(sessions["missing"], 2**63 - 1)
    spans = views.of(rows, "SELECT count(*) AS spans FROM spans")[0]["spans"]
    others = sum(row["kind"] in {"instant", "counter", "annotation"} for row in rows)
    assert streams["events"] == spans + others


def test_of_documents_that_came_at_one_place_the_later_counts(views):
    said = [("whole", 30), ("first", 10), ("half", 20)]
    rows = [
        session("metadata", offset=8, producer={"said": word}) | {"time": at} for word, at in said
    ]
    assert views.of(rows, "SELECT producer FROM sessions") == [{"producer": '{"said":"whole"}'}]


def test_a_span_whose_begin_the_collector_had_given_up_is_made_of_both_rows(views):
    rows = [
        row("begin", id=1, name="long", start=5), row("begin", id=2, name="open", start=6),
        row("end", id=1, end=9, attributes={"$flaw": "begin_forgotten"}, offset=50),
        row("end", id=2, end=9, session="other", attributes={"$flaw": "begin_forgotten"}, offset=60),
    ]  # fmt: skip
    spans = views.of(rows, 'SELECT id, name, open, start, "end" FROM spans ORDER BY id')
    assert [tuple(span.values()) for span in spans] == [
        (1, "long", False, 5, 9), (2, "open", True, 6, None),
    ]  # fmt: skip
    (stream,) = views.of(rows, "SELECT open_spans FROM streams WHERE session = 'a'")
    assert stream == {"open_spans": 1}
