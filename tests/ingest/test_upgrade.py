"""Decoder states of earlier versions: the stored ones, and what a step makes of a state made by hand."""

from __future__ import annotations

import msgspec
import pytest

from tailrace.ingest import upgrade
from tailrace.ingest.machine import Ingest
from tailrace.ingest.state import VERSION, IngestState, decode
from tailrace.spool.checkpoint import Checkpoints
from tests.upgrade.stored import NAMES, unpack


@pytest.fixture(params=NAMES)
def snapshot(request, tmp_path):
    stored = unpack(request.param, tmp_path)
    stored.peer.close()
    return Checkpoints(stored.store / "spool").newest(2**64 - 1).state


def test_a_stored_state_is_todays_after_its_steps_and_nothing_of_it_is_lost(snapshot):
    before = msgspec.msgpack.decode(snapshot, strict=False)
    ingest = Ingest.restore(snapshot)
    assert ingest.state.version == VERSION
    assert ingest.position == before["position"]
    assert ingest.open_sessions().keys() == before["sessions"].keys()
    for name, tally in before["tallies"].items():
        now = ingest.tally(name)
        assert (now.received, now.rows) == (tally["received"], tally["rows"])
        assert ingest.account(name).imbalance == 0
    seen = {name: ingest.account(name).seen for name in ("udp", "tcp", "jets")}
    connected = any(info.transport == "tcp" for info in ingest.open_sessions().values())
    if connected:  # it was killed
        assert seen == {"udp": 116, "tcp": 60, "jets": 20}
    else:
        assert seen == {"udp": 145, "tcp": 100, "jets": 20}


def test_what_the_sessions_of_a_source_share_is_what_they_have(snapshot):
    state = decode(upgrade.upgraded(snapshot), IngestState)
    for name, common in state.commons.items():
        runs = [s.current for s in state.sessions.values() if s.info.source == name]
        runs = [run for run in runs if not isinstance(run, str)]
        runs += [a.incarnation for a in state.announced.get(name, {}).values()]
        streams = [stream for run in runs for stream in run.counters.streams.values()]
        assert common.streams == len(streams)
        assert common.ranges == sum(stream.ranges for stream in streams)


def test_a_run_is_where_the_bytes_of_its_session_are(snapshot):
    state = decode(upgrade.upgraded(snapshot), IngestState)
    for session in state.sessions.values():
        if not isinstance(session.current, str):
            place = session.file.offset if session.file else session.received
            assert session.current.reached == place > 0


def test_a_stream_of_version_1_keeps_its_ranges_in_order_and_its_first_marks():
    state = {
        "version": 1,
        "position": 7,
        "tallies": {"s": {"expected": 9, "seen": 4, "missing": 5}},
        "sessions": {3: session_of_version_1(window=8)},
    }
    now = decode(upgrade.upgraded(msgspec.msgpack.encode(state)), IngestState)
    [session] = now.sessions.values()
    stream = session.current.counters.streams["1"]
    assert [(gap.first, gap.last, gap.before) for gap in stream.gaps] == [(1, 2, 55), (4, 5, 50)]
    assert [(hole.first, hole.since, hole.before) for hole in stream.holes] == [(7, 60, 60)]
    assert list(stream.head) == [0, 0, 0, 103, 0, 0, 106, 0, 108, 109]  # those of the last eight
    assert (now.tallies["s"].events.expected, now.tallies["s"].events.missing) == (9, 5)
    common = now.commons["s"]
    assert (common.streams, common.ranges, common.mixed) == (1, 3, True)


def session_of_version_1(window):
    recent = [0] * window
    for number in (3, 6, 8, 9):
        recent[number % window] = 100 + number
    gaps = [[4, 5, 50, "network"], [1, 2, 55, "network"]]
    info = {
        "source": "s", "format": "heph", "session": "x", "transport": "udp", "peer": "p",
        "record_max": 9, "garbage_max": 0,
        "ledger": {"reorder_events": window, "reorder_time": 2.0, "streams_max": 1, "holes_max": 8},
    }  # fmt: skip
    stream = {"next": 10, "recent": recent, "gaps": gaps, "holes": [[7, 7, 60, "network"]]}
    return {"number": 3, "info": info, "name": "x", "counters": {"streams": {"1": stream}}}


@pytest.mark.parametrize("version", [0, 2, VERSION + 1])
def test_a_state_of_another_version_is_not_taken_for_one(version):
    assert not upgrade.can_upgrade(version)
    with pytest.raises(KeyError):
        upgrade.upgraded(msgspec.msgpack.encode({"version": version}))
