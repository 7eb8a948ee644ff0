"""Limits on what producers may make the daemon hold and begin.

`Budget` limits the state of each session, of all sessions of a source, and of all. The limits are those of the session's
opening entry (`session_state_max`, `source_state_max`, `state_max`). The budget looks at a session's state after each
entry, so the state that is given up is a function of the spool's entries. A session above its own limit gives way. Where
sources or the process hold too much, the sessions that hold most give way first, and a session that holds little loses
nothing. A session that gives way goes down to seven eighths of the limit. So at least an eighth of the limit in
new state comes between two looks at all sessions. Within a session, the largest containers give way, down to
the size of the next one.

`Beginnings` limits how many sessions a host begins in a second.
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
    """A session that holds state."""

    @property
    def name(self) -> str: ...

    @property
    def source(self) -> str: ...

    @property
    def limits(self) -> LedgerConfig: ...

    @property
    def holdings(self) -> Iterable[Holding]: ...

    def gave_up(self, what: dict[str, int], now: int) -> None:
        """Write a row that says how many entries of each kind were given up."""
        ...


class Budget:
    """How much state the open sessions hold."""

    def __init__(self) -> None:
        self.total = 0
        self.sources: dict[str, int] = {}
        """Bytes held, by source."""
        self.relieved = 0
        """Times that sessions had to give way since the process started; no part of the state."""
        self.said = ""
        """Which limit that was last."""
        self._held: dict[StateHolder, int] = {}

    def weigh(self, holder: StateHolder, now: int) -> None:
        """Measure a session that may have changed, and keep the limits."""
        limits, source = holder.limits, holder.source
        if self._look(holder) > limits.session_state_max:
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

    def add(self, holder: StateHolder) -> None:
        """Count a session of a restored state, which is within its limits."""
        self._look(holder)

    def drop(self, holder: StateHolder) -> None:
        """Forget a session that is over."""
        held = self._held.pop(holder, 0)
        self.total -= held
        self.sources[holder.source] = self.sources.get(holder.source, 0) - held

    def _say(self, who: str, key: str, most: int) -> None:
        self.relieved += 1
        self.said = (
            f"{who} held more state than ledger.{key} ({most}) allows: the oldest was given up"
        )

    def _look(self, holder: StateHolder) -> int:
        held: int = sum(map(_by_size, holder.holdings))
        more = held - self._held.get(holder, 0)
        self._held[holder] = held
        self.total += more
        self.sources[holder.source] = self.sources.get(holder.source, 0) + more
        return held

    def _relieve(
        self, holders: Iterable[StateHolder], most: int, held: Callable[[], int], now: int
    ) -> None:
        """Let the largest sessions give way, down to the size of the next one, until there is room."""
        goal = most - most // 8
        heaviest = sorted(holders, key=lambda h: (-self._held[h], h.name))
        level = _level([self._held[holder] for holder in heaviest], held() - goal)
        for holder in heaviest:
            excess = self._held[holder] - level
            if excess <= 0 or held() <= goal:
                break
            give_way(holder.holdings, excess)
            report(holder, now)
            self._look(holder)


def _level(held: list[int], excess: int) -> int:
    """Return the bytes that each holder may keep so that all together hold `excess` bytes less. `held`
    has the holders' bytes in falling order."""
    above = 0
    for count, (size, following) in enumerate(zip(held, [*held[1:], 0], strict=False), 1):
        above += size
        if above - count * following >= excess:
            return max(0, (above - excess) // count)
    return 0


def give_way(holdings: Iterable[Holding], size: int) -> None:
    """Free bytes. The largest containers give way, down to the size of the next one."""
    largest = sorted(holdings, key=_by_size, reverse=True)
    level = _level([holding.held for holding in largest], size)
    for holding in largest:
        before = holding.held
        if size <= 0 or before <= level:
            break
        holding.give_way(before - level)
        size -= before - holding.held


def report(holder: StateHolder, now: int) -> None:
    """Let a session write a row of what it gave up since the last row."""
    what: dict[str, int] = {}
    for holding in holder.holdings:
        if holding.evicted:
            what[holding.what] = what.get(holding.what, 0) + holding.evicted
            holding.evicted = 0
    if what:
        holder.gave_up(what, now)


SECOND = 10**9

TOO_MANY_SESSIONS: Final = "too_many_sessions"
"""The reason of bytes beyond the limit, which are malformed."""

EVENTS = 100
"""Events that take about as long as the beginning of a session."""

HOSTS_MAX = 1024
"""The most hosts to remember. The host whose last session began first is forgotten, and may begin a second's sessions again."""


@lru_cache(1024)
def whose(host: str) -> str:
    """Return the host that has an address, or the text itself if it is not an address."""
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
    """Return the part of a peer's name that all its connections share: the address without port."""
    host, colon, port = peer.rpartition(":")
    return host if colon and port.isdigit() else peer


def host_that_begins(peer: str) -> str:
    """Return the host of a session's peer."""
    return whose(host_of(peer))


class Beginnings:
    """The sessions that the hosts of one source have begun lately."""

    def __init__(self, state: dict[str, int]) -> None:
        """Use a state: by host, the time (ns) at which the host may begin a whole second's sessions at once."""
        self._state = state

    def exhausted(self, host: str, rate: int, now: int) -> bool:
        """Return whether a host may begin no session now."""
        return max(self._state.get(host, 0), now) + SECOND // rate > now + SECOND

    def admit(self, host: str, rate: int, now: int) -> bool:
        """Count a session that a host begins. Return False, without counting it, beyond the limit."""
        if self.exhausted(host, rate, now):
            return False
        self._state[host] = max(self._state.pop(host, 0), now) + SECOND // rate
        if len(self._state) > HOSTS_MAX:
            del self._state[next(iter(self._state))]
        return True

    def pay(self, host: str, rate: int, events: int) -> None:
        """Count events of a host, which allow it further sessions."""
        if host in self._state:
            self._state[host] -= events * SECOND // (rate * EVENTS)
