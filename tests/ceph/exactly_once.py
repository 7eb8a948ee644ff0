"""Check the table after `killing`: each event that reached a spool is there once, and all others are reported as
missing.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict

from tests.ceph.killing import JetsLines
from tests.ceph.table_log import merges, removed, turns
from tests.faults.test_kill import check
from tests.faults.test_many_killed import of_streams

SOURCES = ("tcp", "udp")
"""Sources whose producers count their events and leave some out."""


def check_rows(rows, lives):
    """Return the number of missing events of each Heph stream."""
    missing = {}
    for life in lives:
        mine = of_streams([row for row in rows if row["source"] in SOURCES], life.streams)
        stored, named = check(mine, life.spool, life.producers)
        for producer in life.producers:
            stream = str(producer.stream)
            numbers = set(range(max(stored[stream]) + 1))
            assert named[stream] == numbers - stored[stream], (
                "a gap row names what is stored, or more"
            )
            left_out = producer.skipped & numbers
            assert left_out, "nothing was left out"
            assert named[stream] >= left_out
            missing[stream] = len(named[stream])
        _check_client(rows, life)
    _check_jets([row for row in rows if row["source"] == "jets"], lives)
    return missing


def _check_client(rows, life):
    """Check that everything that the client emitted is in the table once.

    It was delivered, so all of it had been acknowledged.
    """
    emitted, delivered, discarded = life.said
    assert (delivered, discarded) == (True, 0)
    assert min(emitted) > 0
    mine = [row for row in rows if row["source"] == "client" and row["name"] == life.client.name]
    for stream, count in enumerate(emitted):
        found = sorted(row["seq"] for row in mine if row["stream"] == str(stream))
        assert found == list(range(count)), f"{life.client.name}, stream {stream}"
    sessions = {row["session"] for row in mine}
    lacking = [r for r in rows if r["session"] in sessions and r["kind"] in {"gap", "heal"}]
    assert sum((1 if r["kind"] == "gap" else -1) * count_of(r) for r in lacking) == 0


def _check_jets(rows, lives):
    found = defaultdict(Counter)
    for row in rows:
        session = row["session"].split(".")[0]
        if row["kind"] == "gap" and row["name"] == "unresolved":
            assert count_of(row) == 1
            found["unresolved"][session, row["id"]] += 1
        elif row["kind"] == "instant":
            found["instant"][session, row["parent"]] += 1
        elif row["kind"] == "span":
            found["span"][session, row["id"]] += 1
    lines = JetsLines({s: data for life in lives for s, data in life.spool.lines.items()})
    assert found["span"] == lines.spans
    assert found["instant"] == lines.instants
    assert found["unresolved"] == lines.unresolved
    assert max(lines.spans.values()) == 1
    assert lines.unresolved


def count_of(row):
    return json.loads(row["attributes"])["count"]


def check_answers(asked, missing, rows):
    """Check that commands report the same about streams and gaps as the rows. `asked` runs a command on the store."""
    mine = [row for row in rows if row["source"] in SOURCES]
    stored = Counter(row["stream"] for row in mine if row["kind"] == "span")
    streams = [json.loads(line) for line in asked("streams", "--json").splitlines()]
    by_stream, gaps = Counter(), Counter()
    for each in streams:
        if each["source"] in SOURCES:
            by_stream[each["stream"]] += each["missing"]
    for line in asked("gaps", "--json").splitlines():
        each = json.loads(line)
        # A kill cuts off a piece of a packet, and the number of events in it is unknown.
        if each["source"] in SOURCES and each["remaining"] is not None:
            gaps[each["stream"]] += each["remaining"]
    assert +by_stream == +Counter(missing)
    assert +gaps == +Counter(missing)
    statement = (
        "SELECT stream, count(*) AS n FROM events WHERE kind = 'span' AND source IN ('tcp', 'udp')"
        " GROUP BY stream"
    )
    told = {
        each["stream"]: each["n"]
        for each in map(json.loads, asked("query", "--json", statement).splitlines())
    }
    assert told == dict(stored)
    listed = [json.loads(line) for line in asked("collectors", "--json").splitlines()]
    assert [each["health"] for each in listed] == ["stopped"] * 2, listed


def check_upkeeps(versions, writers):
    """Check that upkeeps merged while all writers committed, one upkeep at a time. Return their turns."""
    found = turns(versions)
    assert any(turn.merges and len(turn.writers) == writers for turn in found), found
    assert max(Counter(removed(versions)).values()) == 1, "two upkeeps merged one file"
    assert sum(map(merges, versions)) == sum(len(turn.merges) for turn in found)
    return found
