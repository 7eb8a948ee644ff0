"""Decoding the log's end shows what was known of it before."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from tailrace.ingest.machine import Ahead, Ingest
from tailrace.ingest.state import encode
from tailrace.spool.entry import LAST, EntryKind
from tailrace.spool.payloads import DropCount
from tests.ingest.log import Log, heph_event, run

SOCKETS = (11, 12)


def _write(log, step, pick):
    """Add the entries of one step; `pick` chooses among the sessions opened so far."""
    opened = [e.session for e in log.entries if e.kind == EntryKind.OPEN]
    session = opened[pick % len(opened)] if opened else 5
    match step:
        case "connection":
            log.open()
        case "peer":
            log.open(transport="udp", source="u")
        case "file":
            log.open_file("ovni", f"/runs/loom.a/proc.1/thread.{len(opened)}/stream.obs")
        case "data":
            log.data(session, heph_event(1, pick))
        case "close":
            log.close(session)
        case "drops":
            dropped = DropCount(
                source="u", count=1, since=log.now, socket=SOCKETS[pick % 2], total=len(log.entries)
            )
            log.add(EntryKind.DROPS, 0, encode(dropped))
        case "tick":
            log.tick(0.5)
        case "stop":
            log.stop()
        case "last":
            log.stop(LAST)


STEPS = ("connection", "peer", "file", "data", "close", "drops", "tick", "stop", "last")


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 20)), max_size=25),
    st.integers(0, 25),
)
def test_sessions_drops_and_time_at_the_end_need_no_decoding(steps, decoded):
    log = Log()
    for step, pick in steps:
        _write(log, step, pick)
    decoded = min(decoded, len(log.entries))
    behind, _ = run(log.entries[:decoded])
    ahead = Ahead(behind)
    for entry in log.entries[decoded:]:
        ahead.apply(entry)
    there, _ = run(log.entries)
    assert ahead.sessions == there.open_sessions()
    assert ahead.now == there.now
    for socket in SOCKETS:
        assert ahead.drops_told("u", socket) == there.common("u").drops.told(socket)


def test_an_empty_log_has_nothing_ahead():
    ahead = Ahead(Ingest())
    assert (ahead.sessions, ahead.now, ahead.drops_told("u", 1)) == ({}, 0, 0)
