"""The announced sessions of a source (clients/PROTOCOL.md): how long each is known.

A session outlives its connections. Without a connection it waits for `resume_time`; then, if its client
said no goodbye, it is over. With a goodbye it is over when its last connection ends or, where datagrams
may be late, after `reorder_time`. Its numbers stay known for `resume_time`, since a client that has not
heard that its end arrived sends the end once more.

A session is forgotten early when more than `sessions_max` are without a connection, or a stream needs
room. The session that left first is forgotten first.

Whoever knows a session's id can continue it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

from tailrace.ingest.announced import Announced
from tailrace.ingest.budget import Budget
from tailrace.ingest.incarnation import Attach, Incarnation
from tailrace.ingest.state import AnnouncedState
from tailrace.ledger.findings import Account
from tailrace.spool.payloads import OpenInfo


class Announcements:
    """The announced sessions of one source."""

    def __init__(
        self,
        states: dict[str, AnnouncedState],
        attach: Callable[[OpenInfo], Attach],
        budget: Budget,
    ) -> None:
        self._states = states
        self._budget = budget
        self._known = {
            id_: Announced(s, attach(s.info)(s.incarnation)) for id_, s in states.items()
        }
        self._away = OrderedDict.fromkeys(id_ for id_, s in states.items() if not s.carriers)
        self._waiting = {id_ for id_, known in self._known.items() if known.waiting}
        self.news = set(self._known)
        """Ids of the sessions with news for their clients."""
        self.changed: set[str] = set()
        """Ids of the sessions that may hold more or less state than when `weigh` last looked."""
        for known in self._known.values():
            budget.add(known)

    def __getitem__(self, id_: str) -> Announced:
        return self._known[id_]

    def __contains__(self, id_: str) -> bool:
        return id_ in self._known

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def open_windows(self) -> int:
        return sum(self._known[id_].incarnation.waiting for id_ in self._waiting)

    def incarnations(self) -> Iterator[tuple[str, Incarnation]]:
        """Yield the ids and incarnations of all sessions."""
        return ((id_, self._known[id_].incarnation) for id_ in sorted(self._known))

    def awaited(self) -> Iterator[Incarnation]:
        """Yield the incarnations that wait for late events."""
        incarnations = (self._known[id_].incarnation for id_ in sorted(self._waiting))
        return (incarnation for incarnation in incarnations if incarnation.waiting)

    @property
    def account(self) -> Account:
        total = Account()
        for known in self._known.values():
            total.add(known.incarnation.account)
        return total

    def find(self, id_: str, now: int) -> Announced | None:
        """Return a known session, None if there is none. Forget a session that was away for too
        long."""
        known = self._known.get(id_)
        if known and known.forgotten(now):
            self.forget(id_, now)
            return None
        return known

    def add(self, id_: str, incarnation: Incarnation, info: OpenInfo, number: int) -> Announced:
        """Make a connection's incarnation that of a new session, and return the session."""
        incarnation.announce(id_)
        state = self._states[id_] = AnnouncedState(incarnation.state, info, [number], bearer=number)
        self._known[id_] = known = Announced(state, incarnation)
        self.heard(id_)
        return known

    def move(self, id_: str, incarnation: Incarnation) -> None:
        """Let a session continue an earlier incarnation, once the ingest has found that both are of one run."""
        known = self._known[id_]
        known.incarnation.state.id = ""
        incarnation.announce(id_)
        known.incarnation, known.state.incarnation = incarnation, incarnation.state
        known.asked, known.owed, known.cut = True, {}, {}
        self.heard(id_)

    def carry(self, id_: str, number: int) -> None:
        """Continue a session over one more connection."""
        self._known[id_].carry(number)
        self._away.pop(id_, None)
        self.heard(id_)

    def heard(self, id_: str) -> None:
        """Take note that something of a session came."""
        self.news.add(id_)
        self.changed.add(id_)
        self._watch(id_)

    def leave(self, id_: str, number: int, now: int) -> None:
        """Take note that a connection no longer carries a session."""
        known = self._known[id_]
        state = known.state
        state.carriers.remove(number)
        known.unhear(number)
        self.heard(id_)
        if state.carriers:
            return
        state.left = now
        known.incarnation.forget_marks()
        self._states[id_] = self._states.pop(id_)
        self._away[id_] = None
        if known.over(now):
            self._end(known, now)
        self._watch(id_)
        while len(self._away) > state.info.ledger.sessions_max:
            self.forget_first(now, "too many sessions")

    def expire(self, now: int) -> None:
        """Close the windows, and forget the sessions, whose time has passed."""
        self.changed |= self._waiting
        for id_ in sorted(self._waiting):
            known = self._known[id_]
            known.incarnation.expire(now)
            if known.over(now):
                self._end(known, now)
            self._watch(id_)
        for id_ in [id_ for id_ in self._away if self._known[id_].forgotten(now)]:
            self.forget(id_, now)

    def started(self, before: int, now: int) -> None:
        """Take note that no daemon ran since `before`. Clients could neither reconnect nor resend then, so
        this time does not count."""
        for id_ in self._away:
            self._known[id_].state.left = now
        for known in self._known.values():
            if known.incarnation.counters is not None:
                known.incarnation.counters.windows.stood_still(now - before)

    def settle(self, now: int) -> None:
        """Close all windows: the daemon stops."""
        self.changed |= self._waiting
        for id_ in sorted(self._waiting):
            self._known[id_].incarnation.settle(now)
            self._watch(id_)

    def weigh(self, now: int) -> None:
        """Keep the limits on the state of sessions that have changed."""
        changed, self.changed = self.changed, set()
        for id_ in sorted(changed & self._known.keys()):
            self._budget.weigh(self._known[id_], now)

    def forget_first(self, now: int, why: str) -> bool:
        """Forget the session that left first. Return whether there was one."""
        if not self._away:
            return False
        self.forget(next(iter(self._away)), now, why)
        return True

    def forget_all(self, why: str, now: int) -> None:
        """Forget all sessions without a connection."""
        for id_ in list(self._away):
            self.forget(id_, now, why)

    def forget_earlier(self, session: str, now: int) -> None:
        """Forget the sessions that began in a file, which the session of this name reads, and that another client's session
        followed there."""
        for id_ in list(self._away):
            state = self._known[id_].state
            if state.info.session == session and state.incarnation.ended:
                self.forget(id_, now, state.incarnation.ended)

    def forget(
        self,
        id_: str,
        now: int,
        why: str = "not resumed",
        about: dict[str, object] | None = None,
    ) -> None:
        """Forget a session, and end it unless it has ended."""
        known = self._known.pop(id_)
        self._budget.drop(known)
        del self._states[id_]
        self._away.pop(id_, None)
        self._waiting.discard(id_)
        self.news.discard(id_)
        if known.state.ended:
            known.incarnation.settle(now)
            known.incarnation.release()
        else:
            known.incarnation.finish(why, about or {}, now)

    def tell(self, hears: Callable[[int], bool]) -> Iterator[Announced]:
        """Yield the sessions that asked for answers, have news, and whose peer hears. Keep the news of
        sessions that do not hear, or have more than one answer's worth, for the next call."""
        for id_ in sorted(self.news):
            known = self._known.get(id_)
            if known is None or not known.state.acknowledge or known.state.voice is None:
                self.news.discard(id_)
            elif hears(known.state.voice):
                self.news.discard(id_)
                yield known
                if known.more:
                    self.news.add(id_)

    def _end(self, known: Announced, now: int) -> None:
        known.state.ended = True
        known.incarnation.end("goodbye", {}, now)

    def _watch(self, id_: str) -> None:
        if self._known[id_].waiting:
            self._waiting.add(id_)
        else:
            self._waiting.discard(id_)
