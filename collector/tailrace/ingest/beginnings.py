"""The limit on sessions that a host's producers begin on connections and at addresses that have had one.

The first session of a connection, of an address or of a file does not count, since other limits bound the number of these.
A host may begin `ledger.new_sessions_rate` more within a second, and one more for each `EVENTS` events. So a relay can
send many short runs over one connection, and a peer that sends only epochs cannot take all of the collector's time.

All loopback addresses are one host, since each user of the host has all of them, and so are the IPv6 addresses of one
subnet (/64).

All times are those of the log, so a replay admits the same sessions.
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
