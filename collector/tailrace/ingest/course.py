"""The runs of one session's producer: which run a record is of, and when a run is over.

A session has a run in being, and may have the run before. On a datagram socket, events of a run may
come after the next run has begun. So a run that ends lingers for `reorder_time`. Where no epochs tell
how its clock goes, it lingers only if something came of it within that time. Meanwhile each event goes to the run that it fits (`owning`), and a repeated epoch
or announcement to the run that said it first. All of a datagram that announces a session is of that
session.

The first epoch or announcement may come alone, after events. Then it is in doubt whether the same
producer sent those events: they may be another producer's, whose own epoch or announcement was lost.
A new run begins in doubt, and the next event, report or goodbye decides. If that fits the run before,
the run before goes on, with the clock and the session that were said.

Where the client announces its session, the run belongs to the announced session (see `announced`).
Earlier connections may have begun that run, and later connections may go on with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from tailrace.ingest.announced import Announced, Announcements
from tailrace.ingest.owning import candidates, owns
from tailrace.ingest.run import Run, marks_of
from tailrace.ingest.state import OpenInfo, RunState, SessionState, Tally
from tailrace.ledger.findings import Account
from tailrace.model.record import Announcement, Kind, Record, SessionFacts
from tailrace.normalize import COUNT, KIND, STREAM

_NUMBERED = frozenset({Kind.SPAN, Kind.COUNTER})
"""Kinds of an event with a counter."""

_EPOCHS_KEPT = 8
"""Epochs of a peer's runs that are known again when they are repeated."""


class Course:
    """The runs of one session. After `save`, the session's state holds all that outlives the process."""

    def __init__(
        self,
        state: SessionState,
        tally: Tally,
        announcements: Announcements,
        attach: Callable[[OpenInfo, RunState], Run],
        *,
        unordered: bool,
        of_file: Callable[[], dict[str, object]],
    ) -> None:
        """Take up the runs of a state. With `unordered`, events may overtake each other, and also the
        epochs and announcements that tell whose they are. `of_file` returns what only the rows of a
        file's runs say."""
        self._state = state
        self._tally = tally
        self._announcements = announcements
        self._new_run = attach
        self._unordered = unordered
        self._of_file = of_file
        self.run = self._attach(state.run)
        """The run in being."""
        self.previous = self._attach(state.previous) if state.previous else None
        """The run before, while something of it may still come."""
        self._speaker: Run | None = None
        """The run of the session that the current datagram announces, if any."""

    # What comes

    def opened(self, now: int) -> None:
        info = self._state.info
        opened = self.run.own.wall(now)
        about: dict[str, object] = {
            "peer": info.peer,
            "transport": info.transport,
            "opened": opened,
        }
        if info.replaces:
            about["replaces"] = info.replaces
        self.run.own.session("open", about | self._of_file(), now)

    def take(self, columns: Sequence[Sequence[Any]], now: int) -> None:
        """Take records without session or malformed ones among them, given as columns."""
        if self._state.doubt and self._speaker in (None, self.run):
            self._ask_events(columns, now)
        if self._speaker:
            self._speaker.take(columns, now)
            return
        while columns[KIND]:
            if self.previous:
                taken = self._take_apart(self.previous, columns, now)
            else:
                taken = self.run.take(columns, now)
            columns = [column[taken:] for column in columns]
            if columns[KIND]:
                self._restart("counter", now)

    def hear(self, facts: SessionFacts, records: list[Record], index: int, now: int) -> Run:
        """Take the record at an index, which tells of the session itself: an epoch, a header, a
        footer, an option. Return the run that it is of."""
        if facts.announces:
            run = self._announced(facts.announces, records, index, now)
            self._speaker = run if self._unordered else None
            return run
        if self._speaker and self._speaker is not self.run:
            return self._speaker
        if earlier := self._earlier(facts.epoch):
            return earlier
        if facts.starts and self.run.state.records and not self._lacks_header(now):
            self._restart("header", now)
        elif facts.epoch is not None:
            self._hear_epoch(facts.epoch, records, index, now)
        if self._state.doubt:
            self._ask_statement(facts, now)
        return self.run

    def datagram_over(self) -> None:
        """Note that what comes next may be another run's than what came."""
        if self._speaker and self._speaker.state.id in self._announcements:
            self._announcements.heard(self._speaker.state.id)
        self._speaker = None

    def reach(self) -> None:
        """Move the runs to the place that the session's bytes have reached."""
        state = self._state
        reached = self.run.state.reached = state.base + state.place
        if self.previous:
            self.previous.state.reached = reached

    def tell(self) -> None:
        """Note that there may be news of the announced sessions that this connection carries."""
        for run in (self.run, self.previous):
            if run and run.state.id:
                self._announcements.heard(run.state.id)

    # Its end

    def expire(self, now: int) -> None:
        """Close the windows whose time has passed."""
        for run in self.own_runs:
            run.expire(now)
        previous = self._lingering
        if previous and previous.state.ended_at + self._linger <= now:
            self._finish_previous(now)

    def settle(self, now: int) -> None:
        """Close all windows now: the daemon stops."""
        if self._lingering:
            self._finish_previous(now)
        for run in self.own_runs:
            run.settle(now)

    def close(self, reason: str, about: dict[str, object], now: int) -> None:
        """End the runs: the connection, peer or file is over."""
        self._finish_previous(now)
        if id_ := self.run.state.id:
            self._leave(id_, reason, about, now)
        else:
            self.run.finish(reason, about, now)
            self.run.depart(now)

    def _leave(self, id_: str, reason: str, about: dict[str, object], now: int) -> None:
        """Leave an announced session, which may go on by another connection; of a file, end it."""
        left = {"left": reason, "peer": self._state.info.peer}
        self.run.own.session("leave", left | about, now)
        self._announcements.leave(id_, self._state.number, now)
        known = self._announcements.find(id_, now)
        if self._state.file and known and not known.state.carriers:
            self._announcements.forget(id_, now, reason, about)

    # What others ask

    @property
    def waiting(self) -> bool:
        """Whether a window is open that time alone can close."""
        return self._lingering is not None or any(run.waiting for run in self.own_runs)

    @property
    def awaited(self) -> Iterator[Run]:
        """Yield the runs of this session alone that wait for late events."""
        return (run for run in self.own_runs if run.waiting)

    @property
    def account(self) -> Account:
        """Return the account of the runs of this session alone; other connections share announced runs."""
        account = Account()
        for run in self.own_runs:
            account.add(run.account)
        return account

    def save(self) -> None:
        state, run = self._state, self.run.state
        state.run = run.id or run
        previous = self.previous.state if self.previous else None
        state.previous = previous and (previous.id or previous)

    @property
    def own_runs(self) -> list[Run]:
        return [run for run in (self.run, self.previous) if run and not run.state.id]

    @property
    def _lingering(self) -> Run | None:
        """Return the run before the one in being, if it waits for late events and for nothing else."""
        return None if self._state.doubt else self.previous

    @property
    def _linger(self) -> int:
        return self._state.info.ledger.reorder_time.ns

    # Whose an event is, when two runs are possible

    def _take_apart(self, previous: Run, columns: Sequence[Sequence[Any]], now: int) -> int:
        """Take records of two runs. Return how many were taken: the next record is of a third run."""
        size = len(columns[KIND])
        epoch = self.run.state.epoch
        done = 0
        while done < size:
            rest = [column[done:] for column in columns]
            at = next(candidates(previous, rest, epoch), size - done)
            taken = self.run.take([column[:at] for column in rest], now) if at else 0
            done += taken
            if taken < at:
                return done
            if done < size:
                one = [column[at : at + 1] for column in rest]
                repeats = not previous.silent(previous.state.ended_at - self._linger)
                is_late = owns(previous, one, self.run, now, repeats=repeats)
                run = previous if is_late else self.run
                if not run.take(one, now):
                    return done
                done += 1
        return done

    # A new run, or none

    def _hear_epoch(self, epoch: int, records: list[Record], index: int, now: int) -> None:
        """Begin a new run where an epoch is not that of the run in being."""
        known = self.run.state.epoch
        if known is None:
            self._introduced("epoch", records, index, now)
        elif known != epoch:
            self._restart("epoch", now, clocked=True)
        self._know(epoch, self.run.state.name)

    def _introduced(self, why: str, records: list[Record], index: int, now: int) -> None:
        """Hear the first epoch or announcement of a run that has events already.

        The events may be another producer's. The event that follows in the same chunk decides. Where
        no event follows, a new run begins in doubt."""
        event = _event_after(records, index)
        if self._state.doubt or self.run.empty:
            return
        if event is not None:
            if self.run.denies([event]):
                self._restart(why, now)
        elif self._unordered and not self.run.state.id:
            self._begin(f"restart: {why}", now, in_doubt=True)

    def _ask_events(self, columns: Sequence[Sequence[Any]], now: int) -> None:
        """Let events tell whether the run in being, which began in doubt, is the run before."""
        counts, marks = columns[COUNT], marks_of(columns)
        events = list(zip(columns[STREAM], counts, marks, strict=True))
        if self.previous and any(count is not None for count in counts):
            self._decide(anew=self.previous.denies(events), now=now)

    def _ask_statement(self, facts: SessionFacts, now: int) -> None:
        """Let a report or a goodbye tell the same."""
        if self.previous and (facts.discarded or facts.goodbye):
            self._decide(anew=self.previous.denies_statement(facts), now=now)

    def _decide(self, *, anew: bool, now: int) -> None:
        """End the doubt: the run in being is a new one, or goes on with the run before."""
        old, new = self.previous, self.run
        if anew or old is None or self._is_shared(new):
            self._began(now)
            self._let_go_of_silent(now)
            return
        self._state.doubt = ""
        self.previous, self.run = None, old
        self._speaker = self._speaker and old
        old.state.reached = new.state.reached
        if id_ := new.state.id:
            self._announcements.move(id_, old)
        old.state.ended, old.state.ended_at = "", 0
        self._take_over_clock(new, {"by": new.state.name}, now)
        new.finish(f"resumes {old.state.name}", {}, now)

    def _is_shared(self, run: Run) -> bool:
        """Return whether other connections have gone on with a run."""
        id_ = run.state.id
        return bool(id_) and self._announcements[id_].state.carriers != [self._state.number]

    def _lacks_header(self, now: int) -> bool:
        """Return whether a header that comes now may be the one of the run in being: datagrams have
        overtaken it."""
        state, run = self._state, self.run.state
        overtaken = state.info.transport == "udp" and run.clock is None
        return overtaken and run.began > now - self._linger

    def _restart(self, why: str, now: int, *, clocked: bool = False) -> None:
        """Begin a new run: the producer began anew in the same connection or from the same address.
        With `clocked`, the epochs of both runs are known."""
        old = self.run.state.name
        self._begin(f"restart: {why}", now)
        if not clocked:
            self._let_go_of_silent(now)
        self._say_restart(old, now)

    def _begin(self, why: str, now: int, *, in_doubt: bool = False) -> None:
        """Set the run in being aside, and go on with a new run."""
        state, old = self._state, self.run.state
        self._set_aside(why, now, in_doubt=in_doubt)
        state.restarts += 1
        self.run = self._attach(
            RunState(f"{state.info.session}.{state.restarts}", reached=old.reached)
        )

    def _began(self, now: int) -> None:
        """The run that began in doubt is a new one."""
        self._state.doubt = ""
        if self.previous:
            self._say_restart(self.previous.state.name, now)

    def _say_restart(self, old: str, now: int) -> None:
        self._tally.restarts += 1
        about = {"continues": old, "opened": self.run.own.wall(now)}
        self.run.own.session("restart", about | self._of_file(), now)

    # Announced sessions

    def _announced(self, said: Announcement, records: list[Record], index: int, now: int) -> Run:
        """Return the run of the session that the client names. The connection goes on with that run
        unless it is one before the run in being."""
        announcements, number = self._announcements, self._state.number
        known = announcements.find(said.id, now)
        if known and (known.run is self.previous or self._was_before(known.run, now)):
            known.hear(said, None)
            return known.run
        if known is None:
            if self.run.state.id:
                self._restart("session", now)
            elif self._unordered:
                self._introduced("session", records, index, now)
            known = announcements.add(said.id, self.run, self._state.info, number)
        elif known.run is not self.run:
            self._resume(known, records[index].offset, now)
        known.hear(said, number)
        return known.run

    def _was_before(self, run: Run, now: int) -> bool:
        """Return whether a run came from this address before the run in being, of which datagrams may still
        come late."""
        return (
            self._unordered
            and f"{run.state.name}.".startswith(f"{self._state.info.session}.")
            and run is not self.run
            and not self.run.silent(now - self._linger)
        )

    def _resume(self, known: Announced, offset: int, now: int) -> None:
        """Go on with a session that other connections have begun, from the record at this offset on."""
        own, info = self.run.state, self._state.info
        # First of all: it may be about to be forgotten.
        self._announcements.carry(known.run.state.id, self._state.number)
        anonymous = self.previous if self._state.doubt else self.run
        if anonymous and not anonymous.state.id:
            known.run.inherit(anonymous, now)
        self._set_aside(f"resumes {known.run.state.name}", now)
        self._let_go_of_silent(now)
        old, self.run = self.run, known.run
        known.state.bearer = self._state.number
        self._state.base = known.run.state.reached - self._state.skipped - offset
        about: dict[str, object] = {"peer": info.peer, "transport": info.transport, "by": own.name}
        self._take_over_clock(old, about, now)
        self.reach()

    def _take_over_clock(self, other: Run, about: dict[str, object], now: int) -> None:
        """Give the run in being the clock of another run that turned out to be its own; a row says so."""
        run, own = self.run.state, other.state
        if own.epoch is not None and run.epoch is None:
            run.epoch, run.clock = own.epoch, own.clock
            run.ticks_per_second = own.ticks_per_second
            about |= {"clock": own.clock, "ticks_per_second": own.ticks_per_second, "epoch": own.epoch}  # fmt: skip
        if run.epoch is not None:
            self._know(run.epoch, run.name)
        self.run.own.session("resume", about, now)

    # The run before

    def _set_aside(self, why: str, now: int, *, in_doubt: bool = False) -> None:
        """Make room for another run. The run in being lingers while its datagrams may be late, and
        while it is in doubt whether it is over."""
        self._finish_previous(now)
        run = self.previous = self.run
        run.state.ended, run.state.ended_at = why, now
        if run.state.id:
            self._announcements[run.state.id].unhear(self._state.number)
        self._state.doubt = why if in_doubt else ""
        if not self._unordered or run.empty:
            self._finish_previous(now)

    def _let_go_of_silent(self, now: int) -> None:
        """Take nothing more for the run before if nothing of it came while its datagrams may be late.
        What it sends last may still come, but no clock would tell it from what the new run sends."""
        if self.previous and self.previous.silent(now - self._linger):
            self._finish_previous(now)

    def _finish_previous(self, now: int) -> None:
        """Take nothing more for the run before the one in being."""
        if self._state.doubt:
            self._began(now)
        run, self.previous = self.previous, None
        if run and run.state.id:
            self._announcements.leave(run.state.id, self._state.number, now)
        elif run:
            run.finish(run.state.ended, {}, run.state.ended_at)

    def _earlier(self, epoch: int | None) -> Run | None:
        """Return the earlier run whose epoch is repeated late, None if there is none. A run that is
        over takes nothing but the repeated epoch."""
        name = self._state.epochs.get(epoch) if epoch is not None else None
        if name is None or name == self.run.state.name or not self._unordered:
            return None
        if self.previous and self.previous.state.name == name:
            return self.previous
        return self._attach(RunState(name))

    def _know(self, epoch: int, name: str) -> None:
        epochs = self._state.epochs
        epochs[epoch] = name
        if len(epochs) > _EPOCHS_KEPT:
            del epochs[next(iter(epochs))]

    def _attach(self, state: RunState | str) -> Run:
        if isinstance(state, str):
            return self._announcements[state].run
        return self._new_run(self._state.info, state)


def _event_after(records: list[Record], index: int) -> tuple[str, int | None, int] | None:
    """Stream, number and mark of the first event behind a record."""
    after = next((r for r in islice(records, index + 1, None) if r.kind in _NUMBERED), None)
    if after is None:
        return None
    (mark,) = marks_of([(value,) for value in after])
    return after.stream, after.count, mark
