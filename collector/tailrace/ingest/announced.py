"""Sessions that their clients announced (clients/PROTOCOL.md): each is one run, by whichever connections
it comes.

A session outlives its connections. Without one it waits for `resume_time`; then, if its client said no
goodbye, it is over. With a goodbye it is over when its last connection ends or, where datagrams may
be late, after `reorder_time`; what comes then is still known again for `resume_time`, since a client
that has not heard that its end arrived sends it once more. A session is forgotten early, the one that
left first before others, when more than `sessions_max` are without a connection or a stream needs room.

Whoever knows a session's id can go on with it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator

from tailrace.config.schema import LedgerConfig
from tailrace.ingest.budget import Budget
from tailrace.ingest.run import Run
from tailrace.ingest.state import AnnouncedState, OpenInfo, RunState
from tailrace.ledger.findings import Account
from tailrace.model.holding import Holding
from tailrace.model.record import Announcement


class Announced:
    """One such session."""

    def __init__(self, state: AnnouncedState, run: Run) -> None:
        self.state = state
        self.run = run
        self.asked = True
        """Whether the next answer is to name all streams."""
        self.told = ""
        """The stream that the last answer that got through named last."""

    @property
    def name(self) -> str:
        return f"{self.source}/{self.run.state.id}"

    @property
    def source(self) -> str:
        return self.state.info.source

    @property
    def limits(self) -> LedgerConfig:
        return self.state.info.ledger

    @property
    def holdings(self) -> list[Holding]:
        """Return what it holds of its client's making."""
        return self.run.holdings

    def gave_up(self, what: dict[str, int], now: int) -> None:
        """See `ingest.budget.Holder`."""
        self.run.gave_up(what, now)

    def hear(self, said: Announcement, number: int | None) -> None:
        """It is announced again, and wants its answers by this connection."""
        state = self.state
        self.asked |= said.turn > state.turn
        state.turn = max(state.turn, said.turn)
        state.acknowledge = said.acknowledge
        state.voice = state.voice if number is None else number

    def unhear(self, number: int) -> None:
        """It gets no answers by this connection any more."""
        if self.state.voice == number:
            self.state.voice = None

    def carry(self, number: int) -> None:
        """It goes on by one more connection."""
        self.state.carriers.append(number)
        self.state.ended = False
        self.asked = True

    @property
    def more(self) -> bool:
        """Whether there is something to tell."""
        return self.asked or (self.run.counters is not None and bool(self.run.counters.news))

    def untell(self, streams: Collection[str]) -> None:
        """An answer with these streams did not get through."""
        if self.run.counters is not None:
            self.run.counters.news.update(streams)
        self.asked |= not streams

    @property
    def waiting(self) -> bool:
        """Whether time alone has something to bring."""
        return self.run.waiting or not (self.state.ended or self._goes_on)

    @property
    def _goes_on(self) -> bool:
        return bool(self.state.carriers) and not self.run.state.goodbye_at

    def over(self, now: int) -> bool:
        """Whether its goodbye has come, and with it all that was still on its way."""
        state, said = self.state, self.run.state.goodbye_at
        if not said or state.ended:
            return False
        if state.info.transport == "udp":
            return said + state.info.ledger.reorder_time.ns <= now
        return not state.carriers

    def forgotten(self, now: int) -> bool:
        """Whether it has been away for too long."""
        state = self.state
        return not state.carriers and state.left + state.info.ledger.resume_time.ns <= now


class Announcements:
    """Those of one source. `news` are the ids of those of which there is something to tell, `changed`
    of those that may hold more or less than they did when somebody emptied this."""

    def __init__(
        self,
        states: dict[str, AnnouncedState],
        attach: Callable[[OpenInfo, RunState], Run],
        budget: Budget,
    ) -> None:
        self._states = states
        self._budget = budget
        self._known = {id_: Announced(s, attach(s.info, s.run)) for id_, s in states.items()}
        self._away = OrderedDict.fromkeys(id_ for id_, s in states.items() if not s.carriers)
        self._waiting = {id_ for id_, known in self._known.items() if known.waiting}
        self.news = set(self._known)
        self.changed: set[str] = set()
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
        return sum(self._known[id_].run.waiting for id_ in self._waiting)

    def awaited(self) -> Iterator[Run]:
        """Yield the runs that wait for late events."""
        runs = (self._known[id_].run for id_ in sorted(self._waiting))
        return (run for run in runs if run.waiting)

    @property
    def account(self) -> Account:
        total = Account()
        for known in self._known.values():
            total.add(known.run.account)
        return total

    def find(self, id_: str, now: int) -> Announced | None:
        """A session that is known, and not to be forgotten by now."""
        known = self._known.get(id_)
        if known and known.forgotten(now):
            self.forget(id_, now)
            return None
        return known

    def add(self, id_: str, run: Run, info: OpenInfo, number: int) -> Announced:
        """A connection's run is that of a session."""
        run.announce(id_)
        state = self._states[id_] = AnnouncedState(run.state, info, [number], bearer=number)
        self._known[id_] = known = Announced(state, run)
        self.heard(id_)
        return known

    def move(self, id_: str, run: Run) -> None:
        """A session's run was in doubt, and is another run that came before."""
        known = self._known[id_]
        known.run.state.id = ""
        run.announce(id_)
        known.run, known.state.run = run, run.state
        known.asked = True
        self.heard(id_)

    def carry(self, id_: str, number: int) -> None:
        """A session goes on by one more connection."""
        self._known[id_].carry(number)
        self._away.pop(id_, None)
        self.heard(id_)

    def heard(self, id_: str) -> None:
        """Something of it came."""
        self.news.add(id_)
        self.changed.add(id_)
        self._watch(id_)

    def leave(self, id_: str, number: int, now: int) -> None:
        """A connection does not carry it any more."""
        known = self._known[id_]
        state = known.state
        state.carriers.remove(number)
        known.unhear(number)
        self.heard(id_)
        if state.carriers:
            return
        state.left = now
        known.run.forget_marks()
        self._states[id_] = self._states.pop(id_)
        self._away[id_] = None
        if known.over(now):
            self._end(known, now)
        self._watch(id_)
        while len(self._away) > state.info.ledger.sessions_max:
            self.forget_first(now, "too many sessions")

    def expire(self, now: int) -> None:
        """Time has passed."""
        self.changed |= self._waiting
        for id_ in sorted(self._waiting):
            known = self._known[id_]
            known.run.expire(now)
            if known.over(now):
                self._end(known, now)
            self._watch(id_)
        for id_ in [id_ for id_ in self._away if self._known[id_].forgotten(now)]:
            self.forget(id_, now)

    def started(self, before: int, now: int) -> None:
        """The daemon was away, too, since `before`: clients had nobody to come back to, nor to send to
        again what is missing."""
        for id_ in self._away:
            self._known[id_].state.left = now
        for known in self._known.values():
            if known.run.counters is not None:
                known.run.counters.windows.stood_still(now - before)

    def settle(self, now: int) -> None:
        """Close all windows now: the daemon stops."""
        self.changed |= self._waiting
        for id_ in sorted(self._waiting):
            self._known[id_].run.settle(now)
            self._watch(id_)

    def weigh(self, now: int) -> None:
        """Keep the bounds on what sessions hold that have changed."""
        changed, self.changed = self.changed, set()
        for id_ in sorted(changed & self._known.keys()):
            self._budget.weigh(self._known[id_], now)

    def forget_first(self, now: int, why: str) -> bool:
        """Make room; whether there was a session to forget."""
        if not self._away:
            return False
        self.forget(next(iter(self._away)), now, why)
        return True

    def forget_all(self, why: str, now: int) -> None:
        """Nobody goes on with any of them."""
        for id_ in list(self._away):
            self.forget(id_, now, why)

    def forget(
        self,
        id_: str,
        now: int,
        why: str = "not resumed",
        about: dict[str, object] | None = None,
    ) -> None:
        """Nothing more of it is expected."""
        known = self._known.pop(id_)
        self._budget.drop(known)
        del self._states[id_]
        self._away.pop(id_, None)
        self._waiting.discard(id_)
        self.news.discard(id_)
        if known.state.ended:
            known.run.release(now)
        else:
            known.run.finish(why, about or {}, now)

    def tell(self, hears: Callable[[int], bool]) -> Iterator[Announced]:
        """Those that asked, of which there is news that was not told, and can be told. Of those with
        more to tell than is told now, and those that do not hear it, there is news the next time."""
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
        known.run.end("goodbye", {}, now)

    def _watch(self, id_: str) -> None:
        if self._known[id_].waiting:
            self._waiting.add(id_)
        else:
            self._waiting.discard(id_)
