"""Where gaps are drawn: between the events around them."""

from __future__ import annotations

import pytest

from tests.export.drawn import of_perfetto
from tests.export.exports import make_export
from tests.export.traces import EPOCH
from tests.query.tables import clocked, gap, make, row, session


def lost(tmp_path, rows, **filters):
    """The name, begin and end of each LOST slice, and what was left out."""
    opening = [session("open", opened=EPOCH), clocked(epoch=EPOCH)]
    store = make(tmp_path / "store", [*opening, *rows])
    exported = make_export(store, "perfetto", tmp_path / "trace", **filters)
    found = sorted(
        (each.name, each.begin - EPOCH, each.begin - EPOCH + each.length)
        for each in of_perfetto(tmp_path / "trace")
        if each.kind == "lost"
    )
    return found, dict(exported.left)


def numbered(*numbers, **values):
    return [
        row(seq=n, offset=10 * n, start=100 * n, end=100 * n + 7, name="step", **values)
        for n in numbers
    ]


def test_a_gap_lies_between_its_neighbours_by_number(tmp_path):
    rows = [*numbered(1, 2, 7, 8), gap(4, 3, offset=999)]
    assert lost(tmp_path, rows) == ([("LOST 4 (network)", 200, 700)], {})


def test_events_of_other_streams_are_no_neighbours(tmp_path):
    rows = [*numbered(1, 9), *numbered(4, 5, stream="2"), gap(2, 3), gap(1, 6, "kernel")]
    wanted = [("LOST 1 (kernel)", 100, 900), ("LOST 2 (network)", 100, 900)]
    assert lost(tmp_path, rows) == (wanted, {})


def test_a_late_event_is_a_neighbour_by_its_number(tmp_path):
    rows = numbered(1, 2, 9)
    rows[0], rows[2] = rows[2] | {"offset": 1}, rows[0] | {"offset": 99}
    assert lost(tmp_path, [*rows, gap(1, 5)])[0] == [("LOST 1 (network)", 200, 900)]


def test_a_gap_before_the_first_event_begins_with_the_session(tmp_path):
    rows = [*numbered(5), *numbered(1, stream="2"), gap(5, 0, "late_join")]
    assert lost(tmp_path, rows)[0] == [("LOST 5 (late_join)", 100, 500)]


def test_a_gap_behind_the_last_event_ends_with_the_session(tmp_path):
    rows = [*numbered(1, 2), *numbered(9, stream="2"), gap(0, reason="truncated", offset=500)]
    wanted = [("LOST an unknown number (truncated)", 200, 907)]
    assert lost(tmp_path, rows)[0] == wanted


def test_a_gap_without_a_number_lies_at_its_offset(tmp_path):
    rows = [*numbered(1, 2, 7), gap(3, offset=25, reason="malformed")]
    assert lost(tmp_path, rows)[0] == [("LOST 3 (malformed)", 200, 700)]


def test_a_gap_of_no_known_stream_lies_among_all_events(tmp_path):
    rows = [*numbered(1, 7), *numbered(3, stream="2"), gap(3, offset=15, stream="")]
    assert lost(tmp_path, rows)[0] == [("LOST 3 (network)", 100, 300)]


@pytest.mark.parametrize(
    ("format_", "values"),
    [("dftracer", {"attributes": {"id": 0}}), ("et3", {})],
)
def test_numbers_are_those_of_the_format(tmp_path, format_, values):
    """DFTracer's ids are attributes, and ET3's numbers are the ticks themselves."""
    rows = [
        row(format=format_, start=tick, end=tick + 1, offset=n, **_with_id(values, tick))
        for n, tick in enumerate([100, 200, 300])
    ]
    rows.append(gap(1, 150, offset=77, stream="", format=format_))
    assert lost(tmp_path, rows)[0] == [("LOST 1 (network)", 100, 200)]


def _with_id(values, tick):
    return {"attributes": {"id": tick}} if values else {}


def test_a_session_without_events_lacks_them_from_opening_to_close(tmp_path):
    rows = [
        *numbered(1),
        session("open", opened=EPOCH + 5, session="b"),
        session("close", closed="done", closed_at=EPOCH + 9, offset=9, session="b"),
        gap(0, reason="truncated", session="b"),
    ]
    assert lost(tmp_path, rows)[0] == [("LOST an unknown number (truncated)", 5, 9)]


def test_a_gap_of_a_session_of_which_nothing_is_known_is_left_out_and_counted(tmp_path):
    rows = [*numbered(1), gap(3, session="damaged", stream="")]
    assert lost(tmp_path, rows) == ([], {"gap without a place in time": 1})


def test_gaps_are_cut_to_the_times_that_are_selected(tmp_path):
    rows = [*numbered(1, 5, 8, 9), gap(3, 2), gap(2, 6, "kernel")]
    since, until = EPOCH + 450, EPOCH + 750
    assert lost(tmp_path, rows, since=since, until=until)[0] == [
        ("LOST 2 (kernel)", 500, 750),
        ("LOST 3 (network)", 450, 500),
    ]
    found, left = lost(tmp_path / "2", rows, since=EPOCH + 850)
    assert (found, left) == ([], {"gap outside of the selected times": 2})
