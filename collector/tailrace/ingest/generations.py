"""Manage the incarnations (runs of the producer) of one session, which follow one another.

On a datagram socket, late events of an incarnation may arrive after the next one has begun. Therefore an ended
incarnation accepts late events for `reorder_time`. An incarnation may begin on suspicion of a restart: if later events
show that the producer did not restart, the previous incarnation continues (see `succession`). In a file with records of
several processes, each process has an incarnation of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from tailrace.ingest.announced import Announced
from tailrace.ingest.incarnation import Incarnation
from tailrace.ingest.shared import Shared
from tailrace.ingest.state import IncarnationState, SessionState
from tailrace.spool.payloads import EOF

_EPOCHS_KEPT = 8
"""Maximum number of epochs (zeros of producers' clocks) that a session remembers, to recognise a late record of an
earlier run."""


class Generations:
    """Holds the current and the previous incarnation (producer run) of a session."""

    def __init__(
        self,
        state: SessionState,
        shared: Shared,
        *,
        unordered: bool,
        of_file: Callable[[], dict[str, object]],
    ) -> None:
        """Restore the incarnations (producer runs) from `state`. `unordered` is true if records may overtake each
        other, as in datagrams. `of_file` returns additional attributes for the first row of each incarnation."""
        self._state = state
        self._tally = shared.tally(state.info.source)
        self._announcements = shared.announced[state.info.source]
        self._new = shared.attach(state.info)
        self.unordered = unordered
        self._of_file = of_file
        self.current = self._attach(state.current)
        self._aside = {process: self._attach(each) for process, each in state.aside.items()}
        self.previous = self._attach(state.previous) if state.previous else None
        """The previous incarnation (producer run), as long as its late events may still arrive; otherwise None."""

    @property
    def doubt(self) -> bool:
        return bool(self._state.doubt)

    @property
    def linger(self) -> int:
        return self._state.info.ledger.reorder_time.ns

    @property
    def waiting(self) -> bool:
        """Return whether an incarnation (producer run) waits for late events. A later entry in the spool that states
        the time (`EntryKind.TICK`) ends the wait."""
        if self.previous is None and not self._aside and not self.current.waiting:
            return False  # the most frequent case: the session has only its current incarnation
        return self._lingering is not None or any(each.waiting for each in self.unannounced)

    @property
    def awaited(self) -> Iterator[Incarnation]:
        return (each for each in self.unannounced if each.waiting)

    @property
    def unannounced(self) -> list[Incarnation]:
        """Return the incarnations (producer runs) that have no session id from their client."""
        if self.previous is None and not self._aside:
            return [] if self.current.state.id else [self.current]
        mine = [self.current, *([self.previous] if self.previous else ()), *self._aside.values()]
        return [each for each in mine if not each.state.id]

    @property
    def by_process(self) -> dict[int, Incarnation]:
        """Return the current incarnation (run) of each process that writes to the input, by process number."""
        return {self._state.process: self.current, **self._aside}

    @property
    def _lingering(self) -> Incarnation | None:
        return None if self._state.doubt else self.previous

    def save(self) -> None:
        state, current = self._state, self.current.state
        state.current = current.id or current
        previous = self.previous.state if self.previous else None
        state.previous = previous and (previous.id or previous)
        state.aside = {process: each.state for process, each in self._aside.items()}

    # Methods that take the records that arrive in a session

    def opened(self, now: int) -> None:
        info = self._state.info
        about: dict[str, object] = {"peer": info.peer, "transport": info.transport}
        about["opened"] = self.current.own.wall(now)
        if info.replaces and not self._state.restarts:
            about["replaces"] = info.replaces
        where = {"rank": info.rank, "node": info.node, "job": info.job}
        about |= {word: value for word, value in where.items() if value is not None}
        self.current.own.session("open", about | self._first_words(self.current), now)

    def take_turn(self, pending: int) -> None:
        """Prepare for bytes of a session that its client announced and that may use several connections. If another
        connection delivered the session's last bytes, set `base`: an offset in this connection's bytes plus `base` is
        the offset in the session's bytes. `pending` is the size (bytes) of this connection's unfinished record."""
        current, state = self.current.state, self._state
        if current.id:
            known = self._announcements[current.id].state
            if known.bearer != state.number:
                known.bearer = state.number
                state.base = current.reached - (state.place - pending)

    def reach(self) -> None:
        """Record the offset up to which bytes have arrived."""
        state = self._state
        reached = self.current.state.reached = state.base + state.place
        if self.previous:
            self.previous.state.reached = reached

    def note_news(self) -> None:
        """Record that the clients of the current and the previous run may have to receive acknowledgements of new
        events."""
        for each in (self.current, self.previous):
            if each and each.state.id:
                self._announcements.heard(each.state.id)

    # Methods that end incarnations (producer runs)

    def expire(self, now: int) -> None:
        """Write gap rows for missing events that can no longer arrive late. Finish the previous run after `linger`
        ns."""
        for each in self.unannounced:
            each.expire(now)
        previous = self._lingering
        if previous and previous.state.ended_at + self.linger <= now:
            self._finish_previous(now)

    def settle(self, now: int) -> None:
        if self._lingering:
            self._finish_previous(now)
        for each in self.unannounced:
            each.settle(now)

    def close(self, reason: str, about: dict[str, object], now: int) -> None:
        """End all incarnations (producer runs). `about` contains attributes for the row of the end."""
        self._finish_previous(now)
        for each in self._aside.values():
            each.finish(reason, {}, now)
        self._aside = {}
        if id_ := self.current.state.id:
            self._leave(id_, reason, about, now)
        else:
            cut = self._state.info.connected and reason != EOF
            self.current.finish(reason, about, now, cut=cut)
            self.current.depart(now, cut=cut)

    def _leave(self, id_: str, reason: str, about: dict[str, object], now: int) -> None:
        """Remove this connection from the session with the id `id_`, which other connections may continue. If the input
        is a file, end all sessions with ids in it that no connection continues: several clients may have written to the
        file, one after the other."""
        left = {"left": reason, "peer": self._state.info.peer}
        self.current.own.session("leave", left | about, now)
        if self._state.file:
            self._announcements.forget_earlier(self._state.info.session, now)
        self._announcements.leave(id_, self._state.number, now)
        known = self._announcements.find(id_, now)
        if self._state.file and known and not known.state.carriers:
            self._announcements.forget(id_, now, reason, about)

    # Methods for input in which several processes have written records

    def turn(self, process: int, now: int) -> None:
        """Make the incarnation (run) of `process` the current one, because this process wrote the next records."""
        state, old = self._state, self.current
        if process == state.process:
            return
        self._aside[state.process], state.process = old, process
        known = self._aside.pop(process, None)
        self.current = known or self._next()
        self.current.state.reached = old.state.reached
        if known is None:
            self.opened(now)

    def keep(self, processes: Collection[int], now: int) -> None:
        """End the incarnations (runs) of all processes except `processes`, which the decoder still knows."""
        for process in sorted(self._aside.keys() - set(processes)):
            self._aside.pop(process).finish("evicted", {}, now)

    def of(self, process: int) -> Incarnation:
        return self._aside.get(process, self.current)

    # Methods that begin or continue an incarnation (producer run)

    def restart(self, why: str, now: int, *, clocked: bool = False) -> None:
        """Begin a new incarnation (producer run). `clocked` means that the epochs of both incarnations are known."""
        old = self.current.state.name
        self.begin(why, now)
        if not clocked:
            self._finish_silent(now)
        self._say_restart(old, now)

    def begin(self, why: str, now: int, *, in_doubt: bool = False) -> None:
        """End the current producer run and begin a new one. If `in_doubt` is true, later events may show that the
        producer did not restart."""
        self._set_aside(f"restart: {why}", now, in_doubt=in_doubt)
        self.current = self._next()

    def begin_late(self, why: str, now: int) -> Incarnation:
        """Begin and return an incarnation (producer run) that has already ended, and whose first records are late."""
        self._finish_previous(now)
        late = self.previous = self._next()
        late.state.ended, late.state.ended_at = f"restart: {why}", now
        self._tally.restarts += 1
        about = {"opened": late.own.wall(now)} | self._first_words(late)
        late.own.session("restart", about, now)
        return late

    def _next(self) -> Incarnation:
        state, reached = self._state, self.current.state.reached
        state.restarts += 1
        return self._attach(
            IncarnationState(f"{state.info.session}.{state.restarts}", reached=reached)
        )

    def decide(self, *, anew: bool, now: int) -> None:
        """Decide whether the producer has restarted, after a suspected restart. If it has not (`anew` is false), its
        previous run continues. But if other connections use the current run, this counts as a restart."""
        old, new = self.previous, self.current
        id_ = new.state.id
        shared = bool(id_) and self._announcements[id_].state.carriers != [self._state.number]
        if anew or old is None or shared:
            self._began(now)
            self._finish_silent(now)
            return
        self._state.doubt = ""
        self.previous, self.current = None, old
        old.state.reached = new.state.reached
        if id_:
            self._announcements.move(id_, old)
        old.state.ended, old.state.ended_at = "", 0
        self._take_over_clock(new, {"by": new.state.name}, now)
        new.finish(f"resumes {old.state.name}", {}, now)

    def _began(self, now: int) -> None:
        """Record that the producer has certainly restarted, and write the row of the restart."""
        self._state.doubt = ""
        if self.previous:
            self._say_restart(self.previous.state.name, now)

    def _say_restart(self, old: str, now: int) -> None:
        self._tally.restarts += 1
        about = {"continues": old, "opened": self.current.own.wall(now)}
        self.current.own.session("restart", about | self._first_words(self.current), now)

    def resume(self, known: Announced, offset: int, now: int) -> None:
        """Continue an announced session (one to which its client gave an id) on this connection. `offset` is the
        position in the connection's bytes of the packet that announces the session."""
        own, info = self.current.state, self._state.info
        # Add the connection to the session before the call of `_set_aside`, which might otherwise drop the session.
        self._announcements.carry(known.incarnation.state.id, self._state.number)
        anonymous = self.previous if self._state.doubt else self.current
        if anonymous and not anonymous.state.id:
            known.incarnation.inherit(anonymous, now)
        self._set_aside(f"resumes {known.incarnation.state.name}", now)
        self._finish_silent(now)
        old, self.current = self.current, known.incarnation
        # `base` is the number to add to offsets in this connection's bytes to get offsets in the session's bytes. It is
        # still correct if this connection delivered the session's last bytes so far.
        if known.state.bearer != self._state.number:
            self._state.base = known.incarnation.state.reached - self._state.skipped - offset
        known.state.bearer = self._state.number
        about: dict[str, object] = {"peer": info.peer, "transport": info.transport, "by": own.name}
        self._take_over_clock(old, about, now)
        self.reach()

    def _take_over_clock(self, other: Incarnation, about: dict[str, object], now: int) -> None:
        """Take over the clock of the incarnation `other`, which is the same producer run, and write a row `resume`."""
        current, its = self.current.state, other.state
        if its.epoch is not None and current.epoch is None:
            current.epoch, current.clock = its.epoch, its.clock
            current.ticks_per_second = its.ticks_per_second
            about |= {"clock": its.clock, "ticks_per_second": its.ticks_per_second, "epoch": its.epoch}  # fmt: skip
        if current.epoch is not None:
            self.know(current.epoch, current.name)
        self.current.own.session("resume", about | self._whose(), now)

    def _first_words(self, incarnation: Incarnation) -> dict[str, object]:
        """Return attributes for the first row of an incarnation (producer run): its file, and the collector's name."""
        about = self._of_file()
        incarnation.state.awaits_end = "ends" in about
        return about | self._whose()

    def _whose(self) -> dict[str, object]:
        name = self._state.info.collector
        return {"collector": name} if name else {}

    # Methods that end the previous incarnation (producer run)

    def _set_aside(self, why: str, now: int, *, in_doubt: bool = False) -> None:
        """End the current producer run and make it the previous one. Finish it at once if no event can be late."""
        self._finish_previous(now)
        old = self.previous = self.current
        old.state.ended, old.state.ended_at = why, now
        if old.state.id:
            self._announcements[old.state.id].unhear(self._state.number)
        self._state.doubt = why if in_doubt else ""
        if not self.unordered:
            self._finish_previous(now)

    def _finish_silent(self, now: int) -> None:
        """Finish the previous producer run if it is silent, because without epochs its late events cannot be
        distinguished from those of the current run."""
        if self.previous and self.previous.silent(now - self.linger):
            self._finish_previous(now)

    def _finish_previous(self, now: int) -> None:
        """Stop accepting late events for the previous incarnation (producer run), and write the row of its end."""
        if self._state.doubt:
            self._began(now)
        old, self.previous = self.previous, None
        if old and old.state.id:
            self._announcements.leave(old.state.id, self._state.number, now)
        elif old:
            old.finish(old.state.ended, {}, old.state.ended_at)

    def know(self, epoch: int, name: str) -> None:
        """Remember that the incarnation (producer run) `name` stated `epoch` (the zero of its clock) in a record."""
        epochs = self._state.epochs
        epochs[epoch] = name
        if len(epochs) > _EPOCHS_KEPT:
            del epochs[next(iter(epochs))]

    def name_of(self, epoch: int) -> str | None:
        """Return the name of the incarnation (producer run) that stated `epoch` (the zero of its clock) in a record;
        None if none is remembered."""
        return self._state.epochs.get(epoch)

    def earlier(self, epoch: int) -> Incarnation:
        """Return the incarnation (producer run) that stated `epoch`. If this incarnation is finished, return an empty
        one with the same name."""
        name = self._state.epochs[epoch]
        if self.previous and self.previous.state.name == name:
            return self.previous
        return self._attach(IncarnationState(name))

    def _attach(self, state: IncarnationState | str) -> Incarnation:
        if isinstance(state, str):
            return self._announcements[state].incarnation
        return self._new(state)
