"""Things that the simulator lets pass, each with the shortest scenario that shows why nobody can tell it. The rows are
those of ARCHITECTURE.md, "Blind spots".

The generator draws no scenario of a kind that is named here. The oracle excuses the others by itself.
"""

from __future__ import annotations

import pytest

from tests.simulation import facts, generate, oracle_wire, reasons, watch
from tests.simulation.book import Book
from tests.simulation.facts import Scenario
from tests.simulation.play import Play
from tests.simulation.test_wire import kind_of
from tests.simulation.verdict import judge
from tests.simulation.violation import Violation
from tests.simulation.world import MS, SECOND


def begin(transport, program=0, at=0, **more):
    return facts.Begin(at=at, program=program, transport=transport, address="a:1", buffer=0, **more)


def emit(at, program=0, count=1):
    return facts.Emit(at=at, program=program, stream=1, count=count)


def scenario(*made, **fates):
    return Scenario(seed=0, facts=list(made), fates=fates)


LINES = scenario(begin("jets-udp"), emit(10 * MS, count=3), **{"up/2": [0, 3 * SECOND]})
HEADER = scenario(begin("jets-udp"), emit(10 * MS), **{"up/0": [0, 3 * SECOND]})


def test_a_late_copy_of_a_line_is_stored_again():
    """Blind spot: "A copy of a JETS datagram"."""
    assert judge(LINES).kind is None
    play = Play(LINES)
    play.run()
    assert [row["name"] for row in play.collector.rows].count("0/1/1") == 2


def test_a_late_copy_of_a_header_looks_like_another_life():
    """Blind spot: "A copy of a JETS datagram"."""
    assert judge(HEADER).kind is None
    play = Play(HEADER)
    play.run()
    assert [row["name"] for row in play.collector.rows].count("restart") == 1


@pytest.mark.parametrize(("delay", "runs"), [(1900 * MS, 1), (2100 * MS, 2)])
def test_a_header_later_than_the_reorder_time_looks_like_another_life(delay, runs):
    """Blind spot: "to which life a JETS line in a datagram belongs"."""
    play = Play(scenario(begin("jets-udp"), emit(10 * MS, count=3), **{"up/0": [delay]}))
    play.run()
    rows = play.collector.rows
    assert [row["name"] for row in rows].count("restart") == runs - 1
    assert kind_of(play) is None
    next(row for row in rows if row["name"] == "0/1/0")["session"] = "another"
    assert kind_of(play) == "a life in two sessions"


REFERENCES = Scenario(
    seed=1,
    facts=[begin("jets-udp"), emit(10 * MS, count=40)],
    fates={"up/13": [100 * MS], "up/14": [], "up/25": []},
    state=2**10,
)


def test_a_record_whose_reference_was_given_up_and_forgotten_stays_missing():
    """Blind spot: "a record to which a JETS line refers"."""
    play = Play(REFERENCES)
    play.run()
    rows = play.collector.rows
    late = next(row["id"] for row in rows if row["name"] == "0/1/12")
    assert kind_of(play) is None
    unresolved = [row for row in rows if row["name"] == "unresolved"]
    assert [row["id"] for row in unresolved].count(late) == 1
    assert {row["kind"] for row in unresolved} == {"gap"}
    rows[:] = [row for row in rows if row["name"] != "evicted"]
    assert kind_of(play) == "another reference"


WRAPS = scenario(
    begin("raw", first=2**32 - 1),
    facts.KillCollector(at=MS),
    emit(10 * MS),
    facts.StartCollector(at=500 * MS),
    emit(SECOND),
)


def test_a_stream_whose_first_event_is_beyond_the_wrap_begins_at_0():
    """Blind spot: "what came before a stream's first event"."""
    assert judge(WRAPS).kind is None
    play = Play(WRAPS)
    play.run()
    assert [(r["name"], r["seq"]) for r in play.collector.rows if r["kind"] == "span"] == [
        ("0/1/1", 0)
    ]
    assert not [row for row in play.collector.rows if row["kind"] == "gap"]


SPEECHLESS = scenario(
    facts.Begin(
        at=0, program=0, transport="udp", address="a:1", buffer=2**17, acknowledge=False
    ),
    *(emit(n * 100 * MS) for n in range(20)),
    facts.Kill(at=3 * SECOND, program=0),
    **{f"up/{number}": [] for number in range(8)},
)  # fmt: skip


def test_the_end_of_a_client_of_which_no_announcement_came_has_no_gap():
    """Blind spot: "whether a producer would say goodbye"."""
    assert judge(SPEECHLESS).kind is None
    play = Play(SPEECHLESS)
    play.run()
    assert play.watch.durable.count
    assert not play.watch.announced
    assert {row["name"] for row in play.collector.rows if row["kind"] == "gap"} == {"late_join"}


OVERTAKEN = Scenario(
    seed=1,
    facts=[
        facts.Begin(
            at=0, program=0, transport="udp", address="a:1", buffer=2**17, acknowledge=False
        ),
        emit(SECOND, count=600),
    ],
    fates={f"up/{number}": [] for number in range(8)} | {"up/11": [10 * MS], "up/13": [10 * MS]},
    limits={"source_holes_max": 1},
)


def test_an_event_from_a_forgotten_gap_is_stored_before_the_announcement(monkeypatch):
    """Blind spot: "what came below a forgotten gap"."""
    assert judge(OVERTAKEN).kind is None
    monkeypatch.setattr(watch, "Book", lambda **_: Book())
    assert judge(OVERTAKEN).kind == "stored and in a gap"


def test_a_copy_from_a_forgotten_gap_is_stored_again_where_no_announcement_came():
    """Blind spot: "what came below a forgotten gap"."""
    unannounced = Scenario(
        seed=1,
        facts=[
            facts.Begin(
                at=0, program=0, transport="udp", address="a:1", buffer=2**17, acknowledge=False
            ),
            *(emit(n * 100 * MS) for n in range(1, 9)),
            facts.Emit(at=SECOND, program=0, stream=2, count=1),
            facts.Emit(at=1100 * MS, program=0, stream=2, count=900),
        ],
        fates={f"up/{number}": [] for number in range(8)}
        | {"up/12": [10 * MS, 20 * MS], "up/14": [10 * MS]},
        limits={"source_holes_max": 1},
    )
    play = Play(unannounced)
    play.run()
    assert not play.watch.announced
    assert kind_of(play) is None
    play.scenario.limits.clear()
    assert kind_of(play) == "stored twice"


ROTTEN = Scenario(
    seed=101595,
    facts=[
        begin("raw"),
        facts.Emit(at=0, program=0, stream=1, count=600, over=21 * MS),
        facts.Rot(at=390 * MS, file="segment", share=0.127),
        facts.KillCollector(at=390 * MS + 1),
    ],
    fates={},
)


def test_nothing_is_demanded_of_a_session_that_may_lack_a_part_of_the_log():
    """Blind spot: "what a disk lost of the log"."""
    play = Play(ROTTEN)
    play.run()
    assert kind_of(play) is None
    rows = play.collector.rows
    (damaged,) = [row for row in rows if "spool_damaged" in str(row["attributes"])]
    damaged["attributes"] = damaged["attributes"].replace("spool_damaged", "")
    assert kind_of(play) is not None
    with pytest.raises(Violation, match="taken in and not stored"):
        oracle_wire.check(play)


def client(at, program):
    address = f"tcp-{program}:1"
    return facts.Begin(at=at, program=program, transport="tcp", address=address, buffer=2**17)


def test_a_client_whose_session_was_forgotten_after_its_goodbye_sends_again():
    """Blind spot: "what an announced session had before it was forgotten"."""
    course = [
        client(0, 1), emit(SECOND, program=1, count=20),
        facts.Close(at=SECOND + MS, program=1, seconds=15.0),
        facts.KillCollector(at=SECOND + 80 * MS),  # before it answers
        client(SECOND + 100 * MS, 2), emit(2 * SECOND, program=2),
        facts.StartCollector(at=4 * SECOND), facts.Close(at=4200 * MS, program=2, seconds=5.0),
    ]  # fmt: skip
    play = Play(Scenario(seed=1, facts=course, fates={}, limits={"sessions_max": 1}))
    play.run()
    assert [row["name"] for row in play.collector.rows].count("1/1") == 40
    assert kind_of(play) is None
    play.scenario.limits.clear()
    assert kind_of(play) == "stored twice"


RETURNS = Scenario(
    seed=1,
    facts=[
        client(0, 0), emit(100 * MS),
        facts.KillCollector(at=2 * SECOND), emit(3 * SECOND, count=600), facts.StartCollector(at=6 * SECOND),
        client(7 * SECOND, 1), emit(7 * SECOND, program=1), facts.Kill(at=7500 * MS, program=1),
    ],
    fates={},
    limits={"sessions_max": 1},
)  # fmt: skip


def test_a_client_whose_session_was_forgotten_joins_late():
    """Blind spot: "what an announced session had before it was forgotten"."""
    play = Play(RETURNS)
    play.run()
    assert kind_of(play) is None
    rows = play.collector.rows
    assert [row["seq"] for row in rows if row["name"] == "late_join"]
    for left in [row for row in rows if "too many sessions" in str(row["attributes"])]:
        left["attributes"] = left["attributes"].replace("too many sessions", "collector ended")
    sessions = {row["session"]: {int(row["name"][0])} for row in rows if row["kind"] == "span"}
    with pytest.raises(Violation, match="the reason late_join is not true"):
        reasons.check(play, rows, sessions)


UNSEEN = Scenario(
    seed=1,
    facts=[
        facts.Partition(at=0, duration=20 * SECOND),
        facts.Begin(at=SECOND, program=0, transport="udp", address="a:1", buffer=2**15),
        *(facts.Emit(at=2 * SECOND, program=0, stream=s, count=1) for s in (1, 2)),
        facts.Emit(at=3 * SECOND, program=0, stream=3, count=300),
    ],
    fates={},
    limits={"streams_max": 2},
)


def test_a_stream_may_have_no_place_of_which_only_a_goodbye_came(monkeypatch):
    """The client forgets what it sent for want of room, and says how far the streams go."""
    assert judge(UNSEEN).kind is None
    monkeypatch.setattr(reasons.Facts, "_streams", {0: {1, 3}})
    assert judge(UNSEEN).kind == "the reason uncounted is not true"


LATE = scenario(
    begin("jets-udp"), emit(10 * MS),
    begin("jets-udp", program=1, at=SECOND), emit(2 * SECOND, program=1),
    **{"up/1": [1500 * MS]},
)  # fmt: skip
REMOVED = scenario(
    begin("raw"), emit(10 * MS, count=60),
    facts.Reload(at=SECOND, reorder_events=512, reorder_seconds=2.0, without="udp", duration=MS),
    **{"up/54": [], "up/58": [3 * SECOND]},
)  # fmt: skip


@pytest.mark.parametrize(
    ("excluded", "kind"),
    [
        (LATE, "two lives in a session"),
        (REMOVED, "in two gaps"),
    ],
    ids=[
        "a line later than the next header",
        "a datagram late over the removal of its source",
    ],
)
def test_what_the_generator_leaves_out_would_be_called_wrong(excluded, kind):
    """Blind spots: "to which life a JETS line in a datagram belongs", "where a stream continues"."""
    assert judge(excluded).kind == kind


def test_a_kill_that_loses_first_words_is_left_out_until_the_table_lets_a_collector_start():
    """Blind spot: "Events that come before the first word"."""
    kill = facts.KillCollector(at=5 * SECOND)
    down = facts.TableDown(at=4 * SECOND, duration=3 * SECOND, landed=False)
    starts = [facts.StartCollector(at=n * SECOND) for n in (6, 8)]
    troubles = [kill, down, *starts]
    assert generate._spare(troubles, [9 * SECOND]) == troubles
    assert generate._spare(troubles, [7 * SECOND + 1]) == [down, *starts]


def test_a_clock_is_set_at_a_shared_address_only_where_the_log_says_so_before_a_kill():
    """Blind spot: "if the wall clock was set while no collector ran"."""
    steps = [facts.SetClock(at=n * SECOND, by=SECOND) for n in (1, 4, 5, 7)]
    life = [facts.KillCollector(at=5 * SECOND), facts.StartCollector(at=6 * SECOND)]
    assert generate._seen(steps, life) == [steps[0], steps[3]]
    crash = [facts.KillCollector(at=5 * SECOND, changes=3)]
    assert generate._seen(steps, crash) == steps[:1]
