"""The limit on sessions that a host's producers begin on connections and at addresses that have had one.

The first session of a connection, of an address or of a file is not counted, since other limits bound how many of these there
are. A host may begin `ledger.new_sessions_rate` more within a second, and one more for each `EVENTS` events: so a relay
that sends many short runs over one connection is let in, and so is whoever sends epochs only, up to a rate that leaves
the collector its time.

All loopback addresses are one host, since each user of the host has all of them, and so are the IPv6 addresses of one
subnet (/64).

All times are those of the log. So a replay admits the same sessions.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address
from typing import Final

from tailrace.ingest.departures import host_of

SECOND = 10**9

TOO_MANY_SESSIONS: Final = "too_many_sessions"
"""The reason of bytes beyond the limit, which are malformed."""

EVENTS = 100
"""Events that take about as long as the beginning of a session."""

HOSTS_MAX = 1024
"""Hosts that are remembered, those that began a session last. A host that is forgotten may begin a second's sessions again."""


@lru_cache(1024)
def whose(host: str) -> str:
    """Return the host that has an address; what is no address is itself a host."""
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return host
    if address.is_loopback:
        return "loopback"
    if address.version == 6:
        return str(address.ipv4_mapped or f"{int(address) >> 64:x}/64")
    return str(address)


def host_that_begins(peer: str) -> str:
    """Return the host of a session's peer."""
    return whose(host_of(peer))


class Beginnings:
    """The sessions that the hosts of one source have begun lately."""

    def __init__(self, state: dict[str, int]) -> None:
        """Take up a state, which has for each host the time (ns) at which it may begin a whole second's sessions at once."""
        self._state = state

    def exhausted(self, host: str, rate: int, now: int) -> bool:
        """Return whether a host may begin no session now."""
        return max(self._state.get(host, 0), now) + SECOND // rate > now + SECOND

    def admit(self, host: str, rate: int, now: int) -> bool:
        """Let a host begin a session, if it may; return whether it may."""
        if self.exhausted(host, rate, now):
            return False
        self._state[host] = max(self._state.pop(host, 0), now) + SECOND // rate
        if len(self._state) > HOSTS_MAX:
            del self._state[next(iter(self._state))]
        return True

    def pay(self, host: str, rate: int, events: int) -> None:
        """Note that so many events of a host came: they admit further sessions."""
        if host in self._state:
            self._state[host] -= events * SECOND // (rate * EVENTS)
