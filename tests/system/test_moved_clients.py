"""A real client that moves between two collectors of one store, as behind a load balancer, while it sends and while
collectors are killed: the table has each event once and calls nothing missing that any collector has."""

from __future__ import annotations

import time

import pytest

import tailrace
import tailrace_client
from tests.system.collector import until
from tests.traffic.switch import Switch

EVENTS = 300
"""Events between two moves; the client's thread sends some of them before it moves and repeats what nobody acknowledged."""


@pytest.fixture
def pair(tmp_path_factory, collectors):
    store = tmp_path_factory.mktemp("shared") / "store"
    return {name: collectors(store=store, name=name).start() for name in ("main", "a")}


class Program:
    """Emits numbered events through a switch."""

    def __init__(self, switch):
        self._switch = switch
        self.emitter = tailrace_client.Emitter(switch.url)
        self.emitted = 0

    def emit(self, events=EVENTS):
        for _ in range(events):
            self.emitter.event("step", number=self.emitted)
            self.emitted += 1
            if self.emitted % 50 == 0:
                time.sleep(0.002)

    def move(self, transport, collector):
        """Move with some events that are acknowledged and some that are not."""
        assert self.emitter.flush(60)
        self.emit()
        self._switch.move(collector.address(transport))
        self.emit()


def lacks(collector, transport):
    """The reasons why events are missing here, by the collector's own figures."""
    figures = collector.status()["sources"][transport]
    gaps, heals = figures["gap_events"], figures["heal_events"]
    return {reason for reason, events in gaps.items() if events > heals.get(reason, 0)}


def check(pair, emitted):
    """Hold the views, of which all readers, exports and certificates are made, against what the client emitted."""
    with tailrace.open(pair["main"].store) as store:
        found = store.sql(
            "SELECT attributes::JSON ->> '$.number' AS number FROM events WHERE name = 'step'"
        )
        assert sorted(int(row["number"]) for row in found) == list(range(emitted))
        missing = store.sql("SELECT reason, remaining FROM gaps")
        assert not list(missing)
        of_streams = store.sql(
            "SELECT sum(events)::BIGINT AS events, min(completeness) AS least FROM streams"
        )
        assert [(row["events"], row["least"]) for row in of_streams] == [(emitted, 1.0)]
        assert store.completeness.missing == {}


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_what_went_to_either_of_them_is_there_once(pair, transport):
    with Switch(transport, pair["main"].address(transport)) as switch:
        program = Program(switch)
        program.emit()
        for name in ("a", "main", "a"):
            program.move(transport, pair[name])
        assert program.emitter.flush(60)
        for collector in pair.values():  # nobody is alarmed by what the other one has
            until(lambda each=collector: lacks(each, transport) == {"elsewhere"}, "the report")
        assert program.emitter.close(60)
    for collector in pair.values():
        collector.settle()
        collector.stop()
    assert pair["main"].rows(kind="gap"), "each of them lacks what the other has"
    check(pair, program.emitted)
    done = pair["main"].cli("query", "--complete-only", "SELECT count(*) FROM events")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_one_that_was_killed_before_it_acknowledged_stores_the_same_events_again(pair, transport):
    """A killed collector decodes at its next start what it had synced. The client has repeated it to the other one."""
    main, other = pair.values()
    with Switch(transport, main.address(transport)) as switch:
        program = Program(switch)
        program.emit()
        until(lambda: main.status()["sources"][transport]["seen_events"] > 0, "some events")
        main.kill()
        switch.move(other.address(transport))
        program.emit()
        assert program.emitter.flush(60)
        main.start()
        program.move(transport, main)
        assert program.emitter.close(60)
    for collector in pair.values():
        collector.settle()
        collector.stop()
    check(pair, program.emitted)
