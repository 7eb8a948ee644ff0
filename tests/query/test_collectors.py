"""Test the health of collectors that a reader computes from the table, at each age of their heartbeats."""

from __future__ import annotations

import pytest

from tailrace.query.collectors import BEATS_MISSED, SLACK_SECONDS, collectors, elsewhere, gone
from tailrace.query.engine import Engine
from tailrace.store.presence import DirectoryLock, Introduction, introduce
from tests.query.tables import SECOND, make, row, session
from tests.store.s3_server import RunningS3

BEGAN = 1_800_000_000 * SECOND
INTERVAL = 60
BOUND = BEATS_MISSED * INTERVAL + SLACK_SECONDS
OWN = {"source": "tailrace", "format": "tailrace"}


def life(name, number, *, beats=2, closed=None, began=BEGAN, **about):
    """Return the rows of one run of a collector: its start, a heartbeat after each interval, and its end if `closed` is
    given.
    """
    who = OWN | {"session": f"{name}{number}"}
    said = {"collector": name, "identity": f"id of {name}", "host": "node", "state": "ok",
            "conditions": "", "interval_seconds": INTERVAL} | about  # fmt: skip
    rows = [session("open", **who) | {"time": began}]
    for seq in range(beats):
        at = began + (seq + 1) * INTERVAL * SECOND
        beat = {"stream": "heartbeat", "name": "heartbeat", "seq": seq, "time": at, "start": at}
        rows.append(row("instant", **who, **beat, attributes=said, offset=seq + 1))
    if closed:
        end = began + (beats + 1) * INTERVAL * SECOND
        rows.append(session("close", closed=closed, offset=beats + 1, **who) | {"time": end})
    return rows


@pytest.fixture
def ask(tmp_path):
    def do(*lives, after=0.0, ended=()):
        """Return the collectors of a table with these rows, `after` seconds after the second heartbeat of a run that
        began at BEGAN.
        """
        engine = Engine(make(tmp_path / "store", *lives))
        return collectors(engine, int(BEGAN + (2 * INTERVAL + after) * SECOND), ended)

    return do


@pytest.mark.parametrize(
    ("after", "health", "since"),
    [
        (0, "ok", None),
        (BOUND - 1, "ok", None),
        (BOUND + 1, "silent", BEGAN + 2 * INTERVAL * SECOND),
        (10**7, "silent", BEGAN + 2 * INTERVAL * SECOND),
        (-BOUND - 1, "unknown", None),
    ],
)
def test_a_heartbeat_that_is_too_old_is_silence(ask, after, health, since):
    [found] = ask(life("main", 1), after=after)
    assert (found.health, found.silent_since, found.age_seconds) == (health, since, after)
    assert (found.name, found.host, found.since) == ("main", "node", BEGAN)


def test_what_it_says_is_shown_while_it_is_heard(ask):
    said = {"state": "degraded", "conditions": "store", "uncommitted_bytes": 7, "spool_bytes": 8,
            "missing_events": 9}  # fmt: skip
    [found] = ask(life("main", 1, **said))
    assert (found.health, found.conditions) == ("degraded", "store")
    assert (found.uncommitted_bytes, found.spool_bytes, found.missing_events) == (7, 8, 9)


def test_an_end_in_order_is_no_silence_and_a_restart_no_end(ask):
    first = life("main", 1, closed="collector restart", began=BEGAN - 1000 * SECOND)
    [found] = ask(first, life("main", 2), after=BOUND - 1)
    assert (found.health, found.since) == ("ok", BEGAN)


def test_one_that_stopped_is_never_silent(ask):
    [found] = ask(life("a", 3, closed="stop"), after=10**6)
    assert (found.name, found.health, found.silent_since) == ("a", "stopped", None)


def test_the_newest_life_counts_if_the_one_before_has_not_said_its_end(ask):
    [found] = ask(life("main", 1, began=BEGAN - 10**6 * SECOND), life("main", 2))
    assert (found.health, found.since) == ("ok", BEGAN)


def test_one_that_nobody_locks_was_killed_unless_it_stopped(ask):
    lives = life("a", 1), life("b", 2, closed="stop"), life("c", 3)
    found = ask(*lives, ended={"id of a", "id of b"})
    assert [(each.name, each.health) for each in found] == [
        ("a", "killed"), ("b", "stopped"), ("c", "ok"),
    ]  # fmt: skip


def test_two_of_one_name_on_two_hosts_are_two(ask):
    found = ask(life("main", 1), life("main", 2, identity="other", host="another"))
    assert [(each.name, each.host) for each in found] == [("main", "another"), ("main", "node")]


def test_heartbeats_that_say_nothing_are_of_an_unknown_host_and_health(ask, tmp_path):
    rows = life("main", 1)
    for each in rows[1:]:
        each["attributes"] = None
    [found] = ask(rows)
    assert (found.host, found.health, found.spool_bytes) == ("", "unknown", None)


def test_an_empty_store_has_none(ask):
    assert ask([]) == []


def test_who_holds_no_lock_is_gone(tmp_path):
    part = tmp_path / "collectors" / "a"
    part.mkdir(parents=True)
    introduce(tmp_path, Introduction("1", "spool"))
    introduce(part, Introduction("2", "spool"))
    with DirectoryLock(part):
        assert gone(tmp_path) == {"1"}


@pytest.fixture
def at_url():
    with RunningS3() as server:

        def do(*lives, here=()):
            """Return the warning about collectors on other hosts, for a table behind a URL."""
            url = make("s3://bucket/store", *lives, options=server.options)
            return elsewhere(Engine(url, server.options), here)

        yield do


def test_at_a_url_only_a_stop_proves_that_nothing_is_left(at_url):
    lives = life("a", 1, closed="stop"), life("b", 2, uncommitted_bytes=0), life("c", 3)
    text = at_url(*lives, here={"id of c"})
    assert text.startswith("collector b on node: not stopped, and cannot be asked from here")
    assert (" a on" in text, " c on" in text) == (False, False)


def test_a_restart_is_no_stop(at_url):
    first = life("a", 1, closed="stop", began=BEGAN - 1000 * SECOND)
    assert "collector a on node" in at_url(first, life("a", 2))


def test_all_have_stopped_or_are_here(at_url):
    lives = life("a", 1, closed="stop"), life("b", 2)
    assert at_url(*lives, here={"id of b"}) == ""


def test_without_collectors_nobody_has_more(at_url):
    assert at_url([row()]) == at_url() == ""


def test_of_many_some_are_named_and_all_counted(at_url):
    text = at_url(*(life(f"c{number}", number) for number in range(9)))
    assert text.startswith("collectors c0 on node, c1 on node, c2 on node and 6 more: ")


def test_a_local_store_is_told_by_its_directories(tmp_path):
    assert elsewhere(Engine(make(tmp_path / "store", life("a", 1))), ()) == ""
