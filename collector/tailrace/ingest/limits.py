"""Limit the memory that producers make the daemon use, and the number of sessions that they begin.

`Budget` limits the memory for each session, each source, and all sources together. It measures a session after each
entry of the spool, so that a replay of the spool evicts the same state. A session above its own limit loses its
oldest entries. Above the other limits, the largest sessions shrink to a common size. Eviction reduces the memory to
seven eighths of the limit, so that it is rare. `Beginnings` limits the sessions that a host begins per second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from ipaddress import ip_address
from operator import attrgetter
from typing import Final, Protocol

from tailrace.config.schema import LedgerConfig
from tailrace.model.holding import Holding

_by_size = attrgetter("held")


class StateHolder(Protocol):
    """A session whose memory is limited. `holdings` are the containers that hold its state."""

    @property
    def name(self) -> str: ...

    @property
    def source(self) -> str: ...

    @property
    def limits(self) -> LedgerConfig: ...

    @property
    def holdings(self) -> Iterable[Holding]: ...

    def gave_up(self, what: dict[str, int], now: int) -> None:
        """Write a row that states how many entries of each kind a memory limit has evicted."""
        ...


class Budget:
    """Measures the memory of the open sessions' state, and enforces the limits on it."""

    def __init__(self) -> None:
        self.total = 0
        self.sources: dict[str, int] = {}
        """Memory (bytes) of the sessions' state, by source."""
        self.relieved = 0
        """Number of evictions by a memory limit, since the process started."""
        self.said = ""
        """Message that names the limit that was exceeded last."""
        self._held: dict[StateHolder, int] = {}

    def weigh(self, holder: StateHolder, now: int) -> None:
        """Measure a session that may have changed, and evict entries if a memory limit is exceeded."""
        limits, source = holder.limits, holder.source
        if self.look(holder) > limits.session_state_max:
            self._relieve([holder], limits.session_state_max, lambda: self._held[holder], now)
            self._say(f"source {source}: a session", "session_state_max", limits.session_state_max)
        if self.sources[source] > limits.source_state_max:
            own = [each for each in self._held if each.source == source]
            self._relieve(own, limits.source_state_max, lambda: self.sources[source], now)
            self._say(f"source {source}", "source_state_max", limits.source_state_max)
        if self.total > limits.state_max:
            self._relieve(self._held, limits.state_max, lambda: self.total, now)
            self._say("the sources together", "state_max", limits.state_max)
        report(holder, now)

    def drop(self, holder: StateHolder) -> None:
        held = self._held.pop(holder, 0)
        self.total -= held
        self.sources[holder.source] = self.sources.get(holder.source, 0) - held

    def _say(self, who: str, key: str, most: int) -> None:
        self.relieved += 1
        self.said = (
            f"{who} held more state than ledger.{key} ({most}) allows: the oldest was given up"
        )

    def look(self, holder: StateHolder) -> int:
        """Measure and return the memory (bytes) of a session's state, without eviction."""
        held: int = sum(map(_by_size, holder.holdings))
        more = held - self._held.get(holder, 0)
        self._held[holder] = held
        self.total += more
        self.sources[holder.source] = self.sources.get(holder.source, 0) + more
        return held

    def _relieve(
        self, holders: Iterable[StateHolder], most: int, held: Callable[[], int], now: int
    ) -> None:
        """Shrink the largest of `holders` to a common size, until `held()` is at most 7/8 of `most` bytes."""
        goal = most - most // 8
        heaviest = sorted(holders, key=lambda h: (-self._held[h], h.name))
        level = _level([self._held[holder] for holder in heaviest], held() - goal)
        for holder in heaviest:
            excess = self._held[holder] - level
            if excess <= 0 or held() <= goal:
                break
            give_way(holder.holdings, excess)
            report(holder, now)
            self.look(holder)


def _level(held: list[int], excess: int) -> int:
    """Return the size (bytes) to which all larger objects must shrink so that `excess` bytes become free. `held`
    contains their sizes in descending order."""
    above = 0
    for count, (size, following) in enumerate(zip(held, [*held[1:], 0], strict=False), 1):
        above += size
        if above - count * following >= excess:
            return max(0, (above - excess) // count)
    return 0


def give_way(holdings: Iterable[Holding], size: int) -> None:
    """Free `size` bytes: evict entries from the largest of the containers `holdings`, so that these end with equal
    sizes."""
    largest = sorted(holdings, key=_by_size, reverse=True)
    level = _level([holding.held for holding in largest], size)
    for holding in largest:
        before = holding.held
        if size <= 0 or before <= level:
            break
        holding.give_way(before - level)
        size -= before - holding.held


def report(holder: StateHolder, now: int) -> None:
    """Write a row about the entries that were evicted from a session because of memory limits since the last row of
    this kind."""
    what: dict[str, int] = {}
    for holding in holder.holdings:
        if holding.evicted:
            what[holding.what] = what.get(holding.what, 0) + holding.evicted
            holding.evicted = 0
    if what:
        holder.gave_up(what, now)


SECOND = 10**9

TOO_MANY_SESSIONS: Final = "too_many_sessions"
"""Reason in the gap rows of bytes that were refused because the host began too many sessions."""

EVENTS = 100
"""Number of delivered events that give a host back one session of its quota. So many events cost the daemon about as
much as one new session."""

HOSTS_MAX = 1024
"""Maximum number of hosts whose use of the session quota is remembered. A forgotten host has its full quota."""


@lru_cache(1024)
def whose(host: str) -> str:
    """Return the key under which an address is counted: `loopback`, an IPv4 address, or an IPv6 /64 prefix. Return
    any other text unchanged."""
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return host
    if address.is_loopback:
        return "loopback"
    if address.version == 6:
        return str(address.ipv4_mapped or f"{int(address) >> 64:x}/64")
    return str(address)


def host_of(peer: str) -> str:
    """Return the address in a peer's name (`ADDRESS:PORT`), without the port."""
    host, colon, port = peer.rpartition(":")
    return host if colon and port.isdigit() else peer


class Beginnings:
    """Limits how many sessions each host of one source begins per second."""

    def __init__(self, state: dict[str, int]) -> None:
        """Continue from `state`, which maps each host to the time (ns) from which it has its full quota again."""
        self._state = state

    def exhausted(self, host: str, rate: int, now: int) -> bool:
        return max(self._state.get(host, 0), now) + SECOND // rate > now + SECOND

    def admit(self, host: str, rate: int, now: int) -> bool:
        """Count a session that a host begins. Return False, without counting it, if the host has used its quota."""
        if self.exhausted(host, rate, now):
            return False
        self._state[host] = max(self._state.pop(host, 0), now) + SECOND // rate
        if len(self._state) > HOSTS_MAX:
            del self._state[next(iter(self._state))]
        return True

    def pay(self, host: str, rate: int, events: int) -> None:
        """Give a host back a part of its quota of sessions, because its sessions delivered events."""
        if host in self._state:
            self._state[host] -= events * SECOND // (rate * EVENTS)
