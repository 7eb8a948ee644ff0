"""Upgrade the states that earlier versions of the ingest left.

Each step is a pure function on what msgpack holds: dicts, lists and numbers. The classes of earlier
versions are gone. A new member that needs no more than its default needs no function, but a version all
the same: an older ingest must not take the state for its own. There was a version for each change
between two releases; version 2 was never released.

Spool entries need no steps: the members of their payloads are never renamed or dropped, and new members
have defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from tailrace.ingest.state import VERSION
from tailrace.ledger.stream import HEAD, NEVER

State = dict[str, Any]


class Step(NamedTuple):
    """The version that a step leads to, and a function that changes a state in place."""

    version: int
    change: Callable[[State], None]


def version_of(snapshot: bytes) -> int:
    return msgspec.msgpack.decode(snapshot, type=_Version).version


def can_upgrade(version: int) -> bool:
    """Return whether a state of a version is of today's, or can be upgraded to it."""
    return version == VERSION or version in STEPS


def upgraded(snapshot: bytes) -> bytes:
    """Return a state of `VERSION`. Raise KeyError for a version that `can_upgrade` denies."""
    version = version_of(snapshot)
    if version == VERSION:
        return snapshot
    state: State = msgspec.msgpack.decode(snapshot, strict=False)
    while version != VERSION:
        version, change = STEPS[version]
        change(state)
    state["version"] = VERSION
    return msgspec.msgpack.encode(state)


def _runs(state: State) -> None:
    """Upgrade from 1 to 3.

    An incarnation's members (`run`) come apart from its session's. Sessions share limits. A hole knows
    when its stream was last heard. A stream keeps the marks of its first events for good."""
    for tally in state["tallies"].values():
        tally["events"] = _moved(tally, ("expected", "seen", "missing", "duplicates"))
    commons: State = state.setdefault("commons", {})
    for session in state["sessions"].values():
        run = session["run"] = _moved(session, _OF_A_RUN)
        streams = run.get("counters", {}).get("streams", {}).values()
        info = session["info"]
        for stream in streams:
            _remember(stream, info["ledger"]["reorder_events"])
        common = commons.setdefault(info["source"], {"streams": 0, "ranges": 0, "known": 0})
        common["streams"] += len(streams)
        common["known"] += len(streams)
        common["ranges"] += sum(len(s.get("holes", [])) + len(s.get("gaps", [])) for s in streams)
        common["mixed"] = info["transport"] == "udp" or common.get("mixed", False)


_OF_A_RUN = (
    "name", "records", "epoch", "clock", "ticks_per_second", "counters", "references", "spans",
)  # fmt: skip


def _moved(state: State, names: Iterable[str]) -> State:
    return {name: state.pop(name) for name in names if name in state}


def _remember(stream: State, window: int) -> None:
    for name in ("holes", "gaps"):
        if ranges := stream.get(name):
            stream[name] = sorted([first, last, at, at, why] for first, last, at, why in ranges)
    after, recent = stream.get("next", 0), stream.get("recent", [])
    stream["head"] = [
        recent[n % window] if n >= after - window and n % window < len(recent) else NEVER
        for n in range(min(HEAD, after))
    ]


def _places(state: State) -> None:
    """Upgrade from 3 to 4: an incarnation knows how far its bytes go, which were all its session's."""
    for session in state["sessions"].values():
        file = session.get("file")
        for run in _runs_of(session):
            run["reached"] = file["offset"] if file else session.get("received", 0)


def _runs_of(session: State) -> Iterator[State]:
    yield session["run"]
    if previous := session.get("previous"):
        yield previous


def _nothing(state: State) -> None:
    """Upgrade from 4 to 5. The new members have defaults: the daemon's stream, and the sockets of
    drops."""


STEPS = {1: Step(3, _runs), 3: Step(4, _places), 4: Step(5, _nothing)}
"""By the version that a step starts from."""


class _Version(msgspec.Struct):
    version: int
