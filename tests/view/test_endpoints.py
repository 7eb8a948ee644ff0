"""Every figure of an answer equals the same question in SQL over the rows, for random stores."""

from __future__ import annotations

import json
import tempfile
from bisect import bisect
from collections import Counter
from contextlib import closing
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from tailrace.clock import SystemClock
from tailrace.configuration import choose
from tailrace.query.engine import Engine
from tailrace.view.answers import JSON, encoded
from tailrace.view.application import ENDPOINTS
from tailrace.view.leases import ServedStore, SnapshotLease
from tests.export.traces import EPOCH, crowds, stores
from tests.program import COMMAND, run
from tests.query.tables import clocked, compact, dicts, gap, make, row

MANY = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking takes minutes: a table each
)
FEW = settings(MANY, max_examples=3)
"""Each example makes a table and asks 30 questions, which takes 2 s of CPU: so few of them have many stores.
CI runs both."""

BY_PATH = {(each.method, each.path): each for each in ENDPOINTS}

BOUND = st.integers(0, 2**20)
"""Chooses a time at which something begins or ends, or none; see `bounds`."""


class Desk:
    """Asks endpoints in this process, through the JSON that a page gets."""

    def __init__(self, *stores):
        self._stores = [ServedStore(choose(None, str(store)), SystemClock()) for store in stores]

    def ask(self, path, method="GET", **parameters):
        endpoint = BY_PATH[method, path]
        given = {k.rstrip("_"): v for k, v in parameters.items() if v is not None}
        lease = SnapshotLease(self._stores)
        try:
            answer = endpoint.answer(lease, msgspec.convert(given, endpoint.takes, strict=False))
            found = encoded(answer)
            assert lease.same()
        finally:
            lease.end(good=True)
        if found.media_type != JSON:
            return found
        msgspec.json.decode(found.body, type=endpoint.gives[0])  # what the description promises
        return json.loads(found.body)

    def close(self):
        for store in self._stores:
            store.close()


def whole_number(text):
    return None if text is None else int(text)


CHOSEN = {"since": BOUND, "until": BOUND, "merged": st.booleans()}


@FEW
@given(rows=crowds(), **CHOSEN)
def test_figures_equal_those_of_sql(rows, since, until, merged):
    compare(rows, since, until, merged=merged)


@pytest.mark.slow
@MANY
@given(rows=stores(), **CHOSEN)
def test_so_do_those_of_many_stores(rows, since, until, merged):
    compare(rows, since, until, merged=merged)


def bounds(rows, *chosen):
    """Return two times, the earlier first: an event's, or one beside it, where a wrong comparison shows."""
    times = {row["time"] for row in rows if row["time"] is not None} | {EPOCH}
    edges = sorted({time + beside for time in times for beside in (-1, 0, 1)})
    since, until = sorted(edges[each % len(edges)] for each in chosen)
    return since if chosen[0] % 5 else None, until if chosen[1] % 5 else None


def compare(rows, *chosen, merged):
    since, until = bounds(rows, *chosen)
    with tempfile.TemporaryDirectory() as directory:
        half = len(rows) // 2
        store = make(Path(directory) / "store", rows[:half], rows[half:])
        with closing(Desk(store)) as desk, closing(Engine(store)) as engine:

            def ask(sql):
                return dicts(engine.ask(sql))

            check_overview(desk, ask)
            if merged:
                compact(store)
                engine.refresh()
            check_streams(desk, ask)
            check_sessions(desk, ask)
            check_gaps(desk, ask, since, until)
            check_statistics(desk, ask, since, until)
            check_profile(desk, ask, since, until)
            check_search(desk, ask, since, until)
            check_rows(desk, ask)


def check_overview(desk, ask):
    found = desk.ask("overview")
    of_sources = {
        each["source"]: (
            each["sessions"], each["streams"], each["events"], each["missing"], each["unknown"],
            whole_number(each["last_time"]),
        )
        for each in found["sources"]
    }  # fmt: skip
    expected = ask(
        """SELECT source, count(DISTINCT session) AS sessions, count(*) AS streams, sum(events)::BIGINT AS events,
        max(last_time) AS last,
        coalesce((SELECT sum(remaining) FROM gaps AS g WHERE g.source = s.source), 0)::BIGINT AS missing,
        (SELECT count(*) FROM gaps AS g WHERE g.source = s.source AND remaining IS NULL) > 0 AS unknown
        FROM streams AS s GROUP BY source""",
    )
    assert of_sources == {
        e["source"]: (
            e["sessions"], e["streams"], e["events"], e["missing"], e["unknown"] == "true", e["last"]
        )
        for e in expected
    }  # fmt: skip
    lost = ask(
        "SELECT source, reason, coalesce(sum(remaining), 0)::BIGINT AS missing,"
        " count(*) FILTER (remaining IS NULL) AS unknown FROM gaps GROUP BY ALL",
    )
    assert {(e["source"], e["reason"], e["missing"], e["unknown"]) for e in found["missing"]} == {
        (e["source"], e["reason"], e["missing"], e["unknown"]) for e in lost
    }
    total = sum(each["missing"] for each in lost)
    assert sum(found["whole"]["missing"].values()) == total
    assert not (found["whole"]["complete"] and (lost or not of_sources))


def check_streams(desk, ask):
    columns = "source, format, session, stream, events, missing, completeness, open_spans, state"
    sql = f"SELECT {columns} FROM streams ORDER BY events DESC, source, session, stream"  # noqa: S608 - ours
    expected = ask(sql)
    found = desk.ask("streams", sort="events", limit=2)
    assert found["total"] == len(expected)
    pages = found["streams"] + desk.ask("streams", sort="events", offset=2)["streams"]
    assert [{key: each[key] for key in expected[0]} for each in pages] == expected
    some = desk.ask("streams", search="AB")["streams"]
    assert {(e["source"], e["session"], e["stream"]) for e in some} == {
        (e["source"], e["session"], e["stream"])
        for e in expected
        if any(
            "ab" in str(e[k]).lower() for k in ("source", "format", "session", "stream", "state")
        )
    }


def check_sessions(desk, ask):
    expected = ask('SELECT source, session, "rows", events, missing, unknown, state FROM sessions')
    found = desk.ask("sessions")["sessions"]
    assert {tuple(str(each[key]).lower() for key in expected[0]) for each in found} == {
        tuple(str(value).lower() for value in each.values()) for each in expected
    }


def check_gaps(desk, ask, since, until):
    columns = "source, session, stream, reason, first, last, remaining"
    expected = Counter(tuple(each.values()) for each in ask(f"SELECT {columns} FROM gaps"))  # noqa: S608 - ours
    found = desk.ask("gaps", limit=10_000)
    assert found["total"] == len(found["gaps"])
    assert expected == Counter(map(gap_of, found["gaps"]))
    placed = [each for each in found["gaps"] if each["begins"] is not None]
    windows = [(since, until)]
    windows += [(None, int(each["begins"])) for each in placed[:1]]
    windows += [(int(each["ends"]), None) for each in placed[:1]]
    for low, high in windows:
        within = desk.ask("gaps", from_=low, to=high, limit=10_000)["gaps"]
        assert Counter(map(gap_of, within)) == Counter(
            gap_of(each)
            for each in found["gaps"]
            if each["begins"] is None
            or (
                (low is None or int(each["ends"]) >= low)
                and (high is None or int(each["begins"]) < high)
            )
        )
    begins = sorted(int(each["begins"]) for each in placed)
    after = EPOCH + 10
    following = desk.ask("gaps/next", after=after)["gaps"]
    assert [int(each["begins"]) for each in following] == [at for at in begins if at > after][:1]
    before = desk.ask("gaps/next", after=after, backwards=True)["gaps"]
    assert [int(each["begins"]) for each in before] == [at for at in begins if at < after][-1:]


def gap_of(each):
    numbers = whole_number(each["first"]), whole_number(each["last"])
    return (
        each["source"],
        each["session"],
        each["stream"],
        each["reason"],
        *numbers,
        each["remaining"],
    )


def condition(since, until):
    parts = [] if since is None else [f"time >= {since}"]
    return " AND ".join([*parts, *([] if until is None else [f"time < {until}"])]) or "true"


def check_statistics(desk, ask, since, until):
    found = desk.ask("statistics", by=["name", "stream"], from_=since, to=until, self_=False)
    expected = ask(
        "SELECT name, stream, duration IS NOT NULL AS ns, sum(coalesce(duration, ticks))::BIGINT AS total,"  # noqa: S608 - ours
        " max(coalesce(duration, ticks)) AS most, quantile_disc(coalesce(duration, ticks), 0.9) AS p90"
        f" FROM spans WHERE NOT open AND ticks IS NOT NULL AND {condition(since, until)} GROUP BY ALL",
    )
    measured = [each for each in found["groups"] if each["total"] is not None]
    assert {
        (*each["group"], each["unit"], each["total"], each["max"], each["p90"]) for each in measured
    } == {
        (
            e["name"], e["stream"], "ns" if e["ns"] == "true" else "ticks",
            str(e["total"]), str(e["most"]), str(e["p90"]),
        )
        for e in expected
    }  # fmt: skip
    for each in measured:
        for figure in ("total", "min", "p50", "p90", "p95", "p99", "max"):
            low, high = each["bounds"][figure].values()
            assert low is None or int(low) <= int(each[figure])
            assert high is None or int(each[figure]) <= int(high)
    # A span of which a time is not known counts, in one of the units.
    ended = ask(
        f"SELECT name, stream, count(*) AS n FROM spans WHERE NOT open AND {condition(since, until)} GROUP BY ALL",  # noqa: S608 - ours
    )
    counts = Counter[tuple[str, ...]]()
    for each in found["groups"]:
        counts[tuple(each["group"])] += each["count"]
    assert +counts == {(e["name"], e["stream"]): e["n"] for e in ended}
    still_open = ask(
        f"SELECT count(*) AS n FROM spans WHERE open AND {condition(since, until)}",  # noqa: S608 - ours
    )
    assert sum(each["open"] for each in found["groups"]) == still_open[0]["n"]


def check_profile(desk, ask, since, until):
    found = desk.ask("durations", from_=since, to=until, columns=7)
    expected = ask(
        f"SELECT time, duration FROM spans WHERE NOT open AND duration IS NOT NULL AND {condition(since, until)}",  # noqa: S608 - ours
    )
    timed = [(e["time"], e["duration"]) for e in expected if e["time"] is not None]
    width, begin = int(found["width"]), whole_number(found["from"])
    edges = [int(edge) for edge in found["edges"]]
    assert Counter(
        dict(zip(zip(found["columns"], found["rows"], strict=True), found["counts"], strict=True))
    ) == Counter(
        ((time - begin) // width, bisect(edges, max(length, 0)) - 1) for time, length in timed
    )
    check_losses(desk, found, since, until)
    graph = desk.ask("flame", from_=since, to=until)
    roots = sum(int(node["total"]) for node in graph["nodes"] if node["parent"] is None)
    assert roots == sum(int(node["self"]) for node in graph["nodes"])
    over = "true" if since is None else f"time + duration >= {since}"
    over += "" if until is None else f" AND time < {until}"
    counted = ask(
        f"SELECT count(*) AS n FROM spans WHERE NOT open AND duration IS NOT NULL AND {over}",  # noqa: S608 - ours
    )
    assert sum(node["count"] for node in graph["nodes"]) == counted[0]["n"]


def check_losses(desk, found, since, until):
    """Each gap that is left is in columns of the heat map, or counted elsewhere."""
    gaps = desk.ask("gaps", from_=since, to=until, limit=10_000)["gaps"]
    axes = {(e["source"], e["session"]): e["axis"] for e in desk.ask("lanes")["lanes"]}
    begin, end, width = whole_number(found["from"]), whole_number(found["to"]), int(found["width"])
    lossy, elsewhere = set(), 0
    for each in gaps:
        times = each["begins"], each["ends"]
        on_axis = axes.get((each["source"], each["session"])) == "wall" and None not in times
        low, high = map(int, times) if on_axis else (0, 0)
        if each["remaining"] == 0:
            continue
        if begin is None or end == begin or not on_axis or high < begin or low >= end:
            elsewhere += 1
            continue
        lossy |= {
            n for n in range((end - begin) // width)
            if low < begin + (n + 1) * width and high >= begin + n * width
        }  # fmt: skip
    lacking = found["whole"]["unknown"] or any(found["whole"]["missing"].values())
    expected = (sorted(lossy), elsewhere) if lacking else ([], 0)
    assert (found["lossy"], found["elsewhere"]) == expected


def check_search(desk, ask, since, until):
    expected = ask(
        "SELECT time, source, session, \"offset\" FROM events WHERE contains(lower(name), 'step') AND time IS NOT NULL"  # noqa: S608 - ours
        f" AND kind IN ('span', 'begin', 'instant', 'counter', 'annotation') AND {condition(since, until)} ORDER BY ALL",
    )
    found = desk.ask("search", name="STEP", from_=since, to=until, limit=10_000)
    assert not found["more"]
    assert sorted(
        (int(e["time"]), e["place"]["source"], e["place"]["session"], e["place"]["offset"])
        for e in found["events"]
    ) == [tuple(each.values()) for each in expected]
    if len(expected) > 1:
        first = desk.ask("search", name="step", from_=since, to=until)
        assert (first["more"], int(first["events"][0]["time"])) == (True, expected[0]["time"])
        last = desk.ask("search", name="step", from_=since, to=until, backwards=True)
        assert int(last["events"][0]["time"]) == expected[-1]["time"]


def check_rows(desk, ask):
    spans = ask('SELECT * FROM spans ORDER BY source, session, "offset" LIMIT 3')
    for each in spans:
        place = {key: each[key] for key in ("source", "session", "offset")}
        found = desk.ask("row", **place)
        given = next(row for row in found["rows"] if row["view"] == "spans")
        shown = {
            name: str(value) if isinstance(value, int) else value
            for name, value in each.items()
            if name not in {"attributes", "open"}
        }
        assert {name: given["columns"][name] for name in shown} == shown
        assert given["place"] == place


@pytest.fixture
def desk_of():
    made = []

    def make_desk(*stores):
        made.append(Desk(*stores))
        return made[-1]

    yield make_desk
    for each in made:
        each.close()


def test_the_parent_and_the_children_of_a_span_are_those_that_contain_it(desk_of, few_store):
    desk = desk_of(few_store)
    place = {"source": "sim", "session": "aa"}
    outer = desk.ask("row", offset=10, **place)
    assert (outer["parent"], outer["related"]) == (None, "containment")
    assert [each["place"]["offset"] for each in outer["children"]] == list(range(20, 30))
    inner = desk.ask("row", offset=25, **place)
    assert inner["parent"]["place"]["offset"] == 10
    assert inner["children"] == []


def test_a_comparison_is_aligned_at_a_marker(desk_of, few_store):
    desk = desk_of(few_store, few_store)
    sides = {"a_session": ["aa"], "b_session": ["ab"], "b_store": 1}
    found = desk.ask("compare", figure="p95", threshold=0.5, **sides)
    assert {each["group"][0]: (each["word"], each["verdict"]) for each in found["differences"]} == {
        "run": ("cannot be told", "undecided"),
        "step": ("cannot be told", "undecided"),
    }
    assert found["a"]["whole"]["missing"] == {"network": 5}
    aligned = desk.ask("compare", align="mark", length=20_000, figure="count", **sides)
    assert aligned["a"]["marker"] == aligned["a"]["from"] == aligned["b"]["marker"]
    assert int(aligned["a"]["to"]) - int(aligned["a"]["from"]) == 20_000
    assert [(e["group"], e["a"], e["b"]) for e in aligned["differences"]] == [(["step"], "2", "2")]


@pytest.mark.parametrize("figure", ["p50", "total", "count", "max"])
def test_a_comparison_has_the_verdicts_of_diff(desk_of, tmp_path, figure):
    """The second run lacks two spans of `lossy`, and each of its `solve` takes three times as long."""
    random, stores = Random(1), []
    for slow in (1, 3):
        rows = [clocked(epoch=EPOCH)]
        usual = {"solve": 1000 * slow, "step": 1000, "odd": None, "rare": 7}
        for at in range(120):
            for name, length in usual.items():
                if name == "rare" and at % 12:
                    continue
                start = (4 * at + len(rows) % 4) * 10_000
                end = start + (length or random.randrange(1, 2000 << at // 30))
                rows.append(row(name=name, start=start, end=end, offset=len(rows)))
        rows += [row(name=f"only {slow}", start=9, end=10, offset=len(rows))]
        rows += [
            row(name="lossy", stream="2", seq=at, start=at * 9_000, end=at * 9_000 + 1000 + at, offset=1000 + at)
            for at in range(120)
        ]  # fmt: skip
        rows += [gap(20, 120, stream="2", offset=2000)] if slow > 1 else []
        stores.append(make(tmp_path / f"store {slow}", rows))
    desk = desk_of(*stores)
    for threshold, exact in ((0.0, False), (0.1, False), (0.1, True)):
        command = [*COMMAND, "diff", "--json", "--figure", figure, *["--exact"] * exact]
        done = run(
            [*command, "--threshold", f"{threshold:.0%}", *map(str, stores)], capture_output=True
        )
        wanted = {each["name"]: each for each in map(json.loads, done.stdout.splitlines())}
        found = desk.ask("compare", b_store=1, figure=figure, threshold=threshold, exact=exact)
        for each in found["differences"]:
            of_diff = wanted.pop(each["group"][0])
            words = [each[key] for key in ("verdict", "because", "word", "count_a", "count_b")]
            assert words == [
                of_diff[key] for key in ("verdict", "because", "change", "count_a", "count_b")
            ]
        assert wanted == {}
        counts = Counter(each["verdict"] for each in found["differences"])
        assert found["verdicts"] == counts
        if figure == "p50" and threshold and not exact:
            assert found["summary"] == (
                "1 grew, 1 new, 1 undecided because of loss, 2 undecided because of noise, 1 undecided because of few spans"
            )


def test_a_comparison_uses_each_bound_that_is_given(desk_of, few_store):
    """The earlier of two bounds at the end counts. A length without a beginning is refused."""
    desk = desk_of(few_store)
    sides = {"a_session": ["aa"], "b_session": ["ab"], "figure": "count", "exact": True}

    def steps(**bounds):
        found = desk.ask("compare", **sides, **bounds)["differences"]
        return next((each["a"], each["b"]) for each in found if each["group"] == ["step"])

    assert steps(a_from=EPOCH + 10_000, b_to=EPOCH + 20_000) == ("9", "3")
    assert steps(align="mark", a_to=EPOCH + 60_000) == ("1", "4")
    assert steps(align="mark", a_to=EPOCH + 60_000, length=20_000) == ("1", "2")
    assert steps(align="mark", a_to=EPOCH + 90_000, length=20_000) == ("2", "2")
    with pytest.raises(msgspec.ValidationError, match="`length` needs `align`"):
        steps(length=20_000)


def test_tables_are_given_as_csv_too(desk_of, few_store):
    desk = desk_of(few_store)
    lines = desk.ask("statistics", format="csv").body.decode().splitlines()
    heading = "name,unit,count,open,total,self,min,p50,p90,p95,p99,max"
    assert lines[0].startswith(f"{heading},count low,count high,total low")
    assert len(lines) == 3
    sides = {"a_session": ["aa"], "b_session": ["ab"]}
    lines = desk.ask("compare", format="csv", **sides).body.decode().splitlines()
    assert (
        lines[0]
        == "name,unit,p95 a,p95 a low,p95 a high,p95 b,p95 b low,p95 b high,change,verdict,because"
    )
    assert "step,ns,3000,3000,,6000,6000,,cannot be told,undecided,few spans" in lines
