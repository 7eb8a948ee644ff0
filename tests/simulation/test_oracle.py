"""Each check of the oracle bites: a play goes well, and goes wrong once rows or answers are not what they were."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tailrace.ingest.limits import Budget
from tailrace.ingest.machine import Ingest
from tailrace.ledger.windows import Windows
from tests.ingest import log
from tests.simulation import budgets, facts, readers, table, watch
from tests.simulation.client import Datagrams
from tests.simulation.facts import Scenario, decode
from tests.simulation.generate import generate
from tests.simulation.hearing import Hearing
from tests.simulation.oracle import troubles
from tests.simulation.play import Play
from tests.simulation.spans import Spans
from tests.simulation.verdict import judge
from tests.simulation.world import MS, SECOND

CORPUS = Path(__file__).parent / "corpus"


def scenario(*more: facts.Fact, transport="udp", fates=None, **settings) -> Scenario:
    """Return a scenario of a program with two streams, of which the network loses some events."""
    own = facts.Begin(at=0, program=0, transport=transport, address="a:1", buffer=2**20)
    emits = [
        facts.Emit(at=number * 100 * MS, program=0, stream=number % 2, count=20)
        for number in range(10)
    ]
    close = facts.Close(at=9 * SECOND, program=0, seconds=5.0)
    made = sorted([own, *emits, close, *more], key=lambda fact: fact.at)
    return Scenario(seed=1, facts=made, fates=fates or {}, **settings)


LOSSY = scenario(transport="raw", fates={"up/15": [], "up/33": [3 * SECOND], "up/199": []})
"""Raw: nothing that is lost comes again."""
LOSSY.facts[:] = [fact for fact in LOSSY.facts if not isinstance(fact, facts.Close)]
CLIENT = scenario()
STREAM = scenario(transport="tcp")
KILLED = scenario(facts.Kill(at=8 * SECOND, program=0))


@pytest.mark.parametrize("good", [LOSSY, CLIENT, STREAM, KILLED])
def test_a_play_goes_well(good):
    assert judge(good).kind is None


Rows = list[dict[str, object]]


@pytest.fixture
def rows_become(monkeypatch):
    """Let a function change the rows of each commit; it says whether it has, and is asked no more then."""

    def change(tamper: Callable[[Rows], bool]) -> None:
        done = []

        def tampered(batch):
            rows = log.rows(batch)
            if not done and tamper(rows):
                done.append(True)
            return rows

        monkeypatch.setattr(table, "rows", tampered)

    return change


def _first(rows, **values):
    """Return the place of the first row with these values; -1 for none."""
    fitting = (i for i, row in enumerate(rows) if values.items() <= row.items())
    return next(fitting, -1)


def lose_a_span(rows):
    at = _first(rows, kind="span")
    del rows[at : at + 1]
    return at >= 0


def repeat_a_span(rows):
    """One event is stored twice, and another one not at all: sums stay."""
    at = _first(rows, kind="span", name="0/1/3")
    if at >= 0:
        rows[at] = dict(rows[at], name="0/1/2")
    return at >= 0


def lose_a_gap(rows):
    at = _first(rows, kind="gap")
    del rows[at : at + 1]
    return at >= 0


def move_a_gap(rows):
    at = _first(rows, kind="gap")
    if at >= 0:
        rows[at] = dict(rows[at], seq=rows[at]["seq"] - 1)
    return at >= 0


def repeat_a_gap(rows):
    at = _first(rows, kind="gap")
    if at >= 0:
        rows.append(rows[at])
    return at >= 0


def heal_for_another_reason(rows):
    at = _first(rows, kind="heal")
    if at >= 0:
        rows[at] = dict(rows[at], name="kernel")
    return at >= 0


def heal_what_was_there(rows):
    at = _first(rows, kind="heal")
    if at >= 0:
        rows[at] = dict(rows[at], seq=rows[at]["seq"] + 1)
    return at >= 0


def because(reason, **more):
    def tamper(rows):
        at = _first(rows, kind="gap", name="network")
        if at >= 0:
            about = json.loads(rows[at]["attributes"]) | more
            rows[at] = dict(rows[at], name=reason, attributes=json.dumps(about))
        return False

    return tamper


@pytest.mark.parametrize(
    ("tamper", "kind"),
    [
        (lose_a_span, "the ledger and the rows disagree"),
        (repeat_a_span, "taken in and not stored"),
        (lose_a_gap, "the ledger and the rows disagree"),
        (move_a_gap, "stored and in a gap"),
        (repeat_a_gap, "in two gaps"),
        (heal_for_another_reason, "healed for another reason"),
        (heal_what_was_there, "healed and never missing"),
    ],
)
def test_a_commit_is_held_against_the_commits_before(rows_become, tamper, kind):
    rows_become(tamper)
    assert judge(LOSSY).kind == kind


LOST = scenario(transport="raw", fates={"up/15": []})
LOST.facts[:] = [fact for fact in LOST.facts if not isinstance(fact, facts.Close)]


@pytest.mark.parametrize(
    ("reason", "more"),
    [
        ("kernel", {}),
        ("kernel", {"estimate": True}),
        ("sender", {}),
        ("late_join", {}),
        ("truncated", {}),
        ("uncounted", {"count": 0}),
        ("shed", {}),
        ("malformed", {}),
    ],
)
def test_a_reason_is_held_against_what_happened(monkeypatch, rows_become, reason, more):
    monkeypatch.setattr(
        watch.Watch, "committed", lambda self, rows, *_, **__: self.book.go_on(rows)
    )
    rows_become(because(reason, **more))
    assert judge(LOST).kind == f"the reason {reason} is not true"


def test_what_the_client_discarded_is_no_loss_of_the_network(monkeypatch, rows_become):
    full = scenario(
        facts.KillCollector(at=50 * MS),
        facts.Emit(at=950 * MS, program=0, stream=1, count=4000),
        facts.StartCollector(at=6 * SECOND),
        transport="tcp",
    )
    full.facts[:] = [
        fact if not isinstance(fact, facts.Begin) else facts.Begin(
            at=0, program=0, transport="tcp", address="a:1", buffer=2**15
        )
        for fact in full.facts
    ]  # fmt: skip
    assert judge(full).kind is None

    def blame_the_network(rows):
        for at, row in enumerate(rows):
            if row["kind"] in ("gap", "heal") and row["name"] == "sender":
                rows[at] = dict(row, name="network")
        return False

    rows_become(blame_the_network)
    assert judge(full).kind == "the reason network is not true"


@pytest.mark.parametrize("session", [0, 1])
def test_a_report_counts_for_the_session_that_got_it(rows_become, session):
    """The collector forgot the first session before the client named all that it had discarded."""
    path = CORPUS / "discards-in-the-second-session-of-a-forgotten-client.json"
    sessions: list[object] = []

    def blame_the_network(rows):
        for at, row in enumerate(rows):
            if row["kind"] == "gap" and row["name"] == "sender" and row["stream"] == "3":
                sessions.extend({row["session"]} - set(sessions))
                if [row["session"]] == sessions[session : session + 1]:
                    rows[at] = dict(row, name="network")
        return False

    rows_become(blame_the_network)
    assert judge(decode(path.read_bytes())).kind == "the reason network is not true"


def test_a_program_that_did_not_take_leave_has_an_unknown_end(rows_become):
    def conceal(rows):
        rows[:] = [row for row in rows if row["kind"] != "gap" or row["name"] != "truncated"]
        return False

    rows_become(conceal)
    assert judge(KILLED).kind == "an end that is not known, and no gap says so"


def test_a_program_that_took_leave_has_no_unknown_end(monkeypatch, rows_become):
    def accuse(rows):
        at = _first(rows, kind="session", name="close")
        if at >= 0:
            about = json.dumps({"count": 0, "detail": "no_goodbye"})
            rows.append(dict(rows[at], kind="gap", name="truncated", attributes=about))
        return at >= 0

    rows_become(accuse)
    assert judge(STREAM).kind == "the reason truncated is not true"


@pytest.mark.parametrize("stream", ["1", "9"])
def test_an_answer_says_only_what_is_on_disk(monkeypatch, stream):
    answered = watch._words

    def more(data):
        words = answered(data)
        for said in words.answers:
            said["streams"][stream] = said["streams"].get(stream, 0) + 1
        return words

    monkeypatch.setattr(watch, "_words", more)
    assert judge(CLIENT).kind == "an answer before the disk"


def test_an_answer_to_a_goodbye_comes_after_the_goodbye(monkeypatch):
    answered = watch._words

    def early(data):
        words = answered(data)
        for said in words.answers:
            said["goodbye"] = True
        return words

    monkeypatch.setattr(watch, "_words", early)
    assert judge(CLIENT).kind == "an answer to no goodbye"


@pytest.mark.parametrize("good", [CLIENT, STREAM])
def test_a_client_believes_what_answers_said(monkeypatch, good):
    take = Hearing._take

    def less(self, answer):
        streams = {s: max(0, number - 1) for s, number in answer["streams"].items()}
        take(self, dict(answer, streams=streams))

    monkeypatch.setattr(Hearing, "_take", less)
    assert judge(good).kind == "a client believes what nobody said"


# Budgets and waiting


def small_state() -> Scenario:
    """Return a scenario in which a session wants more state than it may have."""
    emits = [
        facts.Emit(at=number * 10 * MS, program=0, stream=number, count=300) for number in range(9)
    ]
    return scenario(*emits, transport="raw", state=2**14)


def test_a_life_is_held_to_its_budgets(monkeypatch):
    small = small_state()
    small.facts[:] = [fact for fact in small.facts if not isinstance(fact, facts.Close)]
    assert judge(small).kind is None
    monkeypatch.setattr(Budget, "_relieve", lambda *_: None)
    assert judge(small).kind == "a session over its budget"


def test_a_snapshot_is_held_to_the_budgets(monkeypatch):
    monkeypatch.setattr(budgets, "SESSION_BYTES", -(2**26))
    assert judge(scenario()).kind == "a snapshot over the budgets"


def test_a_window_closes_in_time(monkeypatch):
    expire = Windows.expire

    def late(windows, now, names=None):
        """Expire windows only when events arrive."""
        if names is not None:
            expire(windows, now, names)

    monkeypatch.setattr(Windows, "expire", late)
    assert judge(LOST).kind == "a window that does not close"


def test_a_client_hears_what_became_of_its_events(monkeypatch):
    stays = scenario()
    stays.facts[:] = [fact for fact in stays.facts if not isinstance(fact, facts.Close)]
    assert judge(stays).kind is None
    monkeypatch.setattr(Datagrams, "receive", lambda _: b"")
    assert judge(stays).kind == "a client that waits for ever"


def test_a_client_is_given_time_while_all_answers_get_lost():
    deaf = scenario(fates={f"down/{number}": [] for number in range(60)})
    deaf.facts[:] = [fact for fact in deaf.facts if not isinstance(fact, facts.Close)]
    assert judge(deaf).kind is None


@pytest.mark.parametrize("good", [CLIENT, KILLED], ids=["client", "killed"])
def test_in_the_end_there_is_nothing_to_wait_for(monkeypatch, good):
    long = msgspec.structs.replace(good, seed=13)
    assert judge(long).kind is None
    monkeypatch.setattr(Ingest, "waiting", True)
    assert judge(long).kind == "a collector that waits for ever"


# Session rows


def of_a_late_epoch(*more: facts.Fact) -> Scenario:
    """Return a scenario of a program whose first datagram is lost, and whose epoch comes next without an event."""
    own = facts.Begin(at=0, program=0, transport="raw", address="a:1", buffer=0)
    emits = [facts.Emit(at=at * SECOND, program=0, stream=at, count=1) for at in (1, 2)]
    torn = facts.Garble(at=3 * SECOND, program=0, how="torn")
    return Scenario(seed=1, facts=[own, *emits, torn, *more], fates={"up/0": []})


DOUBTFUL = of_a_late_epoch()
TOLD = of_a_late_epoch(facts.Emit(at=4 * SECOND, program=0, stream=2, count=1))


def say_that_it_began_anew(rows):
    ends = (i for i, row in enumerate(rows) if row["name"] == "close" and "." not in row["session"])
    at = next(ends, -1)
    if at >= 0:
        about = {**json.loads(rows[at]["attributes"]), "closed": "restart: epoch"}
        rows[at] = dict(rows[at], attributes=json.dumps(about))
    return at >= 0


@pytest.mark.parametrize("good", [LOSSY, TOLD], ids=["an epoch at once", "an event behind it"])
def test_a_restart_is_somebodys(rows_become, good):
    assert judge(good).kind is None
    rows_become(say_that_it_began_anew)
    assert judge(good).kind == "a restart of nobody"


def test_nobody_can_tell_whose_an_epoch_is_behind_which_nothing_comes(rows_become):
    seen = []
    rows_become(lambda rows: seen.extend(row["name"] for row in rows))
    assert judge(DOUBTFUL).kind is None
    assert "restart" in seen


# Readers


@pytest.fixture
def table_becomes(monkeypatch):
    """Let readers look at each play, and a function change the rows on their way into the real table."""
    monkeypatch.setattr(readers, "is_read", lambda seed: True)

    def change(tamper: Callable[[Rows], bool]) -> None:
        commit = readers.tables.commit

        def tampered(store, rows):
            rows = list(rows)
            tamper(rows)
            commit(store, rows)

        monkeypatch.setattr(readers.tables, "commit", tampered)

    return change


def conceal(**values):
    """Put a row that says nothing in place of one with these values."""

    def tamper(rows):
        at = _first(rows, **values)
        if at >= 0:
            rows[at] = dict(rows[at], kind="session", name="note", seq=None, attributes="{}")
        return False

    return tamper


def rename_a_stream(rows):
    at = _first(rows, kind="span", name="0/1/3")
    if at >= 0:
        rows[at] = dict(rows[at], stream="0")
    return False


@pytest.mark.parametrize(
    ("good", "tamper", "kind"),
    [
        (LOST, lose_a_span, "a snapshot of other rows"),
        (LOST, conceal(kind="gap"), "called complete and lacks events"),
        (LOST, rename_a_stream, "another number of events"),
        (KILLED, conceal(kind="gap", name="truncated"), "called complete"),
    ],
)
def test_views_and_completeness_are_held_against_the_world(table_becomes, good, tamper, kind):
    table_becomes(lambda rows: False)
    assert judge(good).kind is None
    table_becomes(tamper)
    assert judge(good).kind == kind


COME_BACK = Scenario(
    seed=1,
    facts=[
        *(
            facts.Begin(at=0, program=p, transport="tcp", address=f"{p}:1", buffer=2**20)
            for p in (0, 1)
        ),
        *(facts.Emit(at=MS, program=p, stream=1, count=20) for p in (0, 1)),
        facts.KillCollector(at=3 * SECOND),
        facts.StartCollector(at=4 * SECOND),
        *(facts.Emit(at=8 * SECOND, program=p, stream=1, count=20) for p in (0, 1)),
        *(facts.Close(at=9 * SECOND, program=p, seconds=5.0) for p in (0, 1)),
    ],
    fates={},
    limits={"sessions_max": 1},
)
"""One of the two sessions is forgotten, and its client comes back. The new session misses what the first has."""


LATE = Scenario(
    seed=7,
    facts=[
        facts.Begin(
            at=0, program=0, transport="udp", address="a:1", buffer=2**17, acknowledge=False
        ),
        facts.Emit(at=SECOND, program=0, stream=1, count=600),
    ],
    fates={f"up/{number}": [] for number in range(8)} | {"up/11": [10 * MS], "up/13": [10 * MS]},
    limits={"source_holes_max": 1},
)
"""Events come from a forgotten gap, and no announcement comes. The gap stays."""


@pytest.mark.parametrize(("good", "more"), [(LOST, 1), (COME_BACK, 21), (LATE, 1)])
def test_programs_lack_no_more_than_they_emitted(table_becomes, good, more):
    def miss_more(rows):
        at = _first(rows, kind="gap")
        if at >= 0:
            about = json.loads(rows[at]["attributes"])
            about["count"] += more
            rows[at] = dict(rows[at], missing=about["count"], attributes=json.dumps(about))
        return False

    table_becomes(lambda rows: False)
    assert judge(good).kind is None
    table_becomes(miss_more)
    assert judge(good).kind == "another sum of the missing"


def say_that_the_end_is_unknown(rows):
    at = _first(rows, kind="session", name="tailrace.goodbye")
    if at >= 0:
        unknown = {"kind": "gap", "name": "truncated", "attributes": '{"count":0}'}
        rows[at] = dict(rows[at], **unknown)
    return False


@pytest.mark.parametrize("places", [1, 16], ids=["a stream without a place", "all have a place"])
def test_complete_is_all_but_streams_without_a_place(table_becomes, places):
    good = scenario(limits={"streams_max": places})
    table_becomes(lambda rows: False)
    assert judge(good).kind is None
    table_becomes(say_that_the_end_is_unknown)
    assert judge(good).kind == "complete and not called so"


TORN = scenario(
    facts.Emit(at=SECOND, program=0, stream=1, count=3000),
    facts.Reset(at=SECOND + 5 * MS, program=0),
    transport="tcp",
)


def test_a_session_with_a_torn_packet_and_all_its_events_may_not_be_called_complete(table_becomes):
    """The bytes of the packet are named; the client sent all of it again."""
    table_becomes(lambda rows: False)
    assert judge(TORN).kind is None
    table_becomes(say_that_the_end_is_unknown)
    assert judge(TORN).kind == "complete and not called so"


def test_an_answer_that_came_before_the_snapshot_does_not_hold_for_it(monkeypatch):
    """The question was right for the snapshot before, and not for this one."""

    def early(snapshot, ask):
        live = ask()
        snapshot.refresh()
        return live

    monkeypatch.setattr(readers, "is_read", lambda seed: True)
    monkeypatch.setattr(readers, "beside", early)
    scenario = msgspec.structs.replace(generate(39), batch=500_000, stalls=0.0)
    assert judge(scenario).kind == "called complete and lacks events"


def test_spans_are_a_set_of_numbers():
    spans, numbers = Spans(), set()
    for first, following in [(5, 8), (10, 12), (8, 9), (0, 1), (3, 11), (20, 20), (30, 31)]:
        spans.add(first, following)
        numbers |= set(range(first, following))
        assert {n for n in range(40) if n in spans} == numbers
        lacking = {n for span in spans.missing(2, 33) for n in range(*span)}
        assert lacking == set(range(2, 33)) - numbers
    assert spans.put(31)
    assert not spans.put(4)
    assert spans.ranges() == [(0, 1), (3, 12), (30, 32)]


def test_a_table_is_trouble_until_the_collector_has_tried_it_again():
    down = facts.TableDown(at=SECOND, duration=3 * SECOND, landed=False)
    play = Play(Scenario(seed=0, facts=[down], fates={}, batch=10))
    assert troubles(play) == [(SECOND, 11 * SECOND)]
