"""Check what must be true after a play. This module shares no code with the ledger or the client.

Facts that no collector can know are left out (ARCHITECTURE.md, "Blind spots"): the last events of a program that did not end
in order. For programs at one address, the generator leaves out the other cases.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from tailrace.errors import LostError, SyncError
from tests.ingest.test_machine import assert_conserved, attributes, of
from tests.simulation import (
    facts,
    oracle_clocks,
    oracle_cuts,
    oracle_files,
    oracle_jets,
    oracle_wire,
    reasons,
)
from tests.simulation.heph import Heph
from tests.simulation.limits import forget_gaps, forgets_connections
from tests.simulation.play import Play, Program
from tests.simulation.reasons import may_be_forgotten
from tests.simulation.table import DOWN
from tests.simulation.violation import Violation, demand, none
from tests.simulation.words import Event, event_of, is_whole
from tests.simulation.world import SECOND

CALM = 4 * SECOND
"""Time (ns) that is longer than a client waits between two attempts, and than the collector takes to answer."""

RETRIED = 10 * SECOND
"""Maximum time (ns) for which a collector waits between two attempts to reach a table that does not answer.

The time doubles after each attempt.
"""

AMPLE = 2**26
"""Size (bytes) of a spool that no scenario fills."""
AMPLE_BATCH = 500_000
"""Number of rows of a batch that no scenario fills while the table does not answer."""


def check(play: Play) -> None:
    """Raise Violation for the first rule that does not hold."""
    rows = [row for row in play.collector.rows if row["format"] == "heph"]
    excused = _excused(play, rows)
    spans = [(row, event_of(row)) for row in of(rows, "span")]
    spans = [(row, event) for row, event in spans if event.program not in excused]
    stored = Counter(event for _, event in spans)
    programs: dict[str, set[int]] = defaultdict(set)
    for row, event in spans:
        programs[row["session"]].add(event.program)
    for session, program in _by_epoch(play, rows):
        if program not in excused:
            programs[session].add(program)
    for session, namesake in _namesakes(rows):
        programs[session] |= programs.get(namesake, set())
    for session, program in announced(play, rows) if len(play.collectors) > 1 else ():
        if program not in excused:
            programs[session].add(program)
    uncounted = Uncounted(play, rows, programs, stored)
    for row, event in spans:
        first = play.first(event.program)
        if row["seq"] != event.number + first:
            known = event in uncounted and (row["seq"] is None or first > 0)
            demand(known, "another number", row)
    twice = [event for event, times in stored.items() if times > 1]
    none("stored twice", [event for event in twice if event not in uncounted])
    none("two programs in a session", [s for s, some in programs.items() if len(some) > 1])
    _check_losses(play)
    judged = {n: program for n, program in play.programs.items() if n not in excused}
    _check_delivered(judged, stored)
    gaps = Gaps(play, rows, programs)
    _check_gaps(judged, gaps, stored, uncounted, _goodbyes(rows, programs))
    if play.watch.sees:
        reasons.check(play, rows, programs)
    else:
        _check_reasons(play, gaps.reasons)
    _check_balance(play)
    _check_failures(play)
    oracle_jets.check(play)
    oracle_wire.check(play)
    accounted = lambda e: e.program in excused or e in stored or e in gaps or e in uncounted  # noqa: E731
    oracle_cuts.check(play, accounted)
    oracle_clocks.check(play)
    oracle_files.check(play, _of_collector(play))


def _excused(play: Play, rows: list[dict[str, Any]]) -> set[int]:
    """Return the programs of which nothing is demanded, because a part of the log may be lost.

    Either the rows of their sessions state that the disk has lost a part of the log, or they had begun when the disk
    lost both checkpoints and an operator moved the spool away. In the shortest scenario, an event is acknowledged, its
    segment rots before the commit, and the collector is killed. If a program's session has no row at all, or never
    ended, it is excused if any row states that the log is damaged: then the beginning of the session is lost.
    """
    moved = max(play.collector.moved_away, default=-1)
    before = {number for number, program in play.programs.items() if program.began <= moved}
    if not any(name.endswith(".segment") for name in play.collector.rotten):
        return before
    damaged, ended, owners = set(), set(), defaultdict(set)
    for row in rows:
        if row["kind"] == "gap" and attributes(row).get("detail") == "spool_damaged":
            damaged.add(row["session"])
        elif row["kind"] == "session" and row["name"] == "close":
            ended.add(row["session"])
        elif row["kind"] == "span":
            owners[event_of(row).program].add(row["session"])
    return before | {
        number
        for number in play.programs
        if damaged and (not owners[number] or owners[number] & damaged or owners[number] - ended)
    }


def _namesakes(rows: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the sessions that clients announced, each with the first session of its client.

    If a client came back to a collector that had forgotten its first session, nothing may have arrived in the new one.
    """
    first: dict[str, str] = {}
    for row in of(rows, "session"):
        if row["name"] == "tailrace.session":
            session = row["session"]
            yield session, first.setdefault(attributes(row)["session"], session)


def announced(play: Play, rows: list[dict[str, Any]]) -> Iterator[tuple[str, int]]:
    """Yield the sessions that clients announced, with their programs. Some of these sessions may have no event."""
    known = {
        program.client.emitter.session: number
        for number, program in play.programs.items()
        if program.client is not None
    }
    for row in of(rows, "session"):
        if row["name"] == "tailrace.session":
            yield row["session"], known[attributes(row)["session"]]


def _by_epoch(play: Play, rows: list[dict[str, Any]]) -> Iterator[tuple[str, int]]:
    """Yield the sessions of connections of programs without a client, with their programs.

    Some of these sessions may have no event.
    """
    known = {
        program.producer.epoch: number
        for number, program in play.programs.items()
        if isinstance(program.producer, Heph) and not program.producer.sender.connectionless
    }
    for row in of(rows, "session"):
        if row["name"] == "epoch" and (epoch := attributes(row)["epoch"]) in known:
            yield row["session"], known[epoch]


def stored_in(play: Play) -> Counter[Event]:
    """Return how many times each event is in the table."""
    spans = of(play.collector.table.store, "span")
    return Counter(event_of(row) for row in spans if row["format"] == "heph")


def _check_delivered(programs: dict[int, Program], stored: Counter[Event]) -> None:
    for number, program in programs.items():
        lacking = [event for event in program.sent[: program.delivered] if event not in stored]
        demand(len(lacking) <= program.excused, "delivered and lost", (number, lacking[:9]))


def _check_losses(play: Play) -> None:
    """Check that events which a client called delivered are stored, even for programs of which nothing else is
    demanded.

    Events of a store that was lost are in the place to which it was moved.
    """
    losses, stored = play.collector.losses, stored_in(play)
    demand(losses.ends == losses.fatal, "lost and not ended", (losses.ends, losses.fatal))
    for number, program in play.programs.items() if losses.for_good else ():
        own = program.sent[losses.moved.get(number, 0) : program.delivered]
        lacking = [event for event in own if event not in stored]
        demand(len(lacking) <= program.excused, "delivered and lost", (number, lacking[:9]))


def _check_gaps(
    judged: dict[int, Program],
    gaps: Gaps,
    stored: Counter[Event],
    uncounted: Uncounted,
    said: set[int],
) -> None:
    """Check that each gap names events that are not stored, once.

    Each event that is not stored must be in a gap, except the last ones of a program.
    """
    exact = {event: times for event, times in gaps.exact.items() if event.program in judged}
    twice = [event for event, times in exact.items() if times > 1]
    none("in two gaps", [event for event in twice if event not in uncounted])
    both = gaps.named & stored.keys()
    none("stored and in a gap", sorted(event for event in both if event not in uncounted))
    highest: dict[tuple[int, int], int] = {}
    for event in stored:
        key = event.program, event.stream
        highest[key] = max(highest.get(key, 0), event.number)
    for program in judged.values():
        if program.begin.transport.startswith("jets"):
            continue
        begin, lacking = program.begin.program, Counter[int]()
        ended = program.ended or begin in said
        for event in program.sent:
            if event not in stored and event in gaps:
                lacking[event.stream] += 1
            known = ended or event.number < highest.get((begin, event.stream), 0)
            there = event in stored or event in gaps or event in uncounted
            demand(not known or there, "nowhere", event)
        beyond = [e for e in gaps.named if e.program == begin]
        none("beyond the end", [e for e in beyond if e.number >= program.numbers[e.stream]])
        counted = [s for s in program.numbers if Event(begin, s, 0) not in uncounted]
        missing = {stream: gaps.missing[begin, stream] for stream in counted}
        demand(missing == {s: lacking[s] for s in missing}, "another sum", (missing, lacking))
        is_whole_session = gaps.sessions[begin] == 1 and len(counted) == len(program.numbers)
        _check_unnumbered(program, gaps, stored, said=is_whole_session and begin in said)


def _check_unnumbered(program: Program, gaps: Gaps, stored: Counter[Event], *, said: bool) -> None:
    """Check the gap with the events that a program discarded without a number.

    The gap may also contain events that no row names. Events that the network lost may reduce it by as many, and so may
    numbers that another session has.
    """
    owner, named = program.begin.program, gaps.unnumbered[program.begin.program]
    nowhere = sum(event not in stored and event not in gaps for event in program.sent)
    demand(named <= program.unnumbered + nowhere, "discarded and numbered", (owner, named))
    lost = sum(event in gaps for event in program.sent) - program.thrown
    least = program.unnumbered - lost if said else 0
    demand(named >= least, "discarded and in no gap", (owner, named, least))


def _goodbyes(rows: list[dict[str, Any]], programs: dict[str, set[int]]) -> set[int]:
    """Return the programs whose goodbye is stored with all its parts."""
    said = defaultdict[str, list[dict[str, Any]]](list)
    for row in of(rows, "session"):
        if row["name"] == "tailrace.goodbye":
            said[row["session"]].append(attributes(row))
    ends = (session for session, goodbyes in said.items() if is_whole(goodbyes))
    return set().union(*(programs.get(session, set()) for session in ends))


class Uncounted:
    """The streams of which the collector knows only the events that arrived.

    They are the streams that it states it did not follow, and those of programs whose sessions it states it forgot too
    early. If it forgets gaps, they also include streams that had a gap without an announcement, or began before it. The
    collector does not state that it forgot a connection of a program without a client. If a stream begins before the
    wrap of its counter and its first event did not arrive, nothing shows where it began (ARCHITECTURE.md, "Blind
    spots").
    """

    def __init__(
        self,
        play: Play,
        rows: list[dict[str, Any]],
        programs: dict[str, set[int]],
        stored: Counter[Event],
    ) -> None:
        self._streams: set[tuple[int, str]] = set()
        for number, program in play.programs.items():
            if program.begin.first:
                streams = (s for s in program.numbers if Event(number, s, 0) not in stored)
                self._streams |= {(number, str(stream)) for stream in streams}
        forgets, announced = forget_gaps(play.scenario.limits), set[str]()
        for row in rows:
            if row["kind"] == "session" and row["name"] == "tailrace.session":
                announced.add(row["session"])
            elif row["kind"] == "gap":
                unknown = row["name"] == "late_join" or row["session"] not in announced
                if row["name"] == "uncounted" or (forgets and unknown):
                    self._streams |= {(owner, row["stream"]) for owner in programs[row["session"]]}
        sessions = Counter(owner for owners in programs.values() for owner in owners)
        if forgets_connections(play.scenario.limits):
            back = {owner for owner, times in sessions.items() if times > 1}
            named = {n for n in back if play.programs[n].begin.transport == "heph-tcp"}
            self._streams |= {(owner, "") for owner in named}
        for row in of(rows, "session"):
            limits = play.scenario.limits
            if row["name"] == "close" and may_be_forgotten(attributes(row)["closed"], limits):
                back = {owner for owner in programs[row["session"]] if sessions[owner] > 1}
                self._streams |= {(owner, "") for owner in back}

    def __contains__(self, event: Event) -> bool:
        return not self._streams.isdisjoint(
            [(event.program, str(event.stream)), (event.program, "")]
        )


class Gaps:
    """The sums of all gap rows and heal rows."""

    def __init__(
        self, play: Play, rows: list[dict[str, Any]], programs: dict[str, set[int]]
    ) -> None:
        self.exact: Counter[Event] = Counter()
        """By event, how many gaps that have not healed contain it, among gaps that name all their numbers."""
        self.missing: Counter[tuple[int, int]] = Counter()
        """By program and stream, the number of missing events."""
        self.reasons: Counter[str] = Counter()
        self.unnumbered: Counter[int] = Counter()
        """By program, the number of events without numbers that it has discarded, according to the rows."""
        self.sessions = Counter(owner for owners in programs.values() for owner in owners)
        self._ranges: dict[tuple[int, int], list[range]] = defaultdict(list)
        """Gaps over a range of numbers, of which only the number of missing events is known."""
        for row in of(rows, "gap") + of(rows, "heal"):
            about, sign = attributes(row), 1 if row["kind"] == "gap" else -1
            self.reasons[row["name"]] += sign * about["count"]
            owners = programs.get(row["session"])
            if row["seq"] is not None and owners:
                (owner,) = owners
                first = play.first(owner)
                if "last" in about:
                    about["last"] -= first
                self._add(owner, int(row["stream"]), row["seq"] - first, about, sign)
            elif owners and about.get("detail") == "unnumbered":
                self.unnumbered.update(dict.fromkeys(owners, sign * about["count"]))

    def __contains__(self, event: Event) -> bool:
        return self.exact[event] > 0 or self._in_range(event)

    @property
    def named(self) -> set[Event]:
        return {event for event, times in self.exact.items() if times > 0}

    def _add(self, owner: int, stream: int, seq: int, about: dict[str, Any], sign: int) -> None:
        self.missing[owner, stream] += sign * about["count"]
        if about.get("of_range"):
            self._ranges[owner, stream].append(range(seq, about["last"] + 1))
            return
        for number in range(seq, seq + about["count"]):
            event = Event(owner, stream, number)
            if sign > 0 or self.exact[event] > 0:
                self.exact[event] += sign
            else:
                demand(self._in_range(event), "healed and never missing", event)

    def _in_range(self, event: Event) -> bool:
        return any(event.number in numbers for numbers in self._ranges.get(event[:2], ()))


def _check_reasons(play: Play, reasons: Counter[str]) -> None:
    """Check that no gap has a reason that did not happen."""
    if not play.collector.dropped:
        demand(reasons["kernel"] <= 0, "the kernel dropped nothing", reasons)


def check_ends(play: Play) -> None:
    """Check that a client that ends in order does so in time, if nothing was wrong in the last `CALM` of its time and
    it read all answers.

    If datagrams may be lost again and again, the client is not checked.
    """
    excused = _excused(play, [row for row in play.collector.rows if row["format"] == "heph"])
    wrong = troubles(play)
    for number, program in play.programs.items():
        if (
            number in excused
            or program.closing is None
            or program.client is None
            or not program.begin.acknowledge
        ):
            continue
        if program.client.discarded:
            continue
        begun, until = program.closing
        deaf = [
            (fact.at, fact.at + fact.duration)
            for fact in play.scenario.facts
            if isinstance(fact, facts.Deaf) and fact.program == number
        ]
        calm = all(end < until - CALM or begin > until for begin, end in wrong + deaf)
        arrives = program.begin.transport == "tcp" or not play.scenario.fates
        if arrives and calm and until - begun >= CALM and not _was_killed(play, number, until):
            demand(program.ended, "an end that takes too long", number)


def _check_failures(play: Play) -> None:
    """Check that a collector fails only because its disk failed, at most once for each failure.

    Also check that it does not start while its table does not answer.
    """
    found = [error for error in play.collector.failures if str(error) != DOWN]
    # `losses` checks these errors
    found = [error for error in found if not isinstance(error, LostError)]
    none("failed", [error for error in found if not isinstance(error, SyncError)])
    broken = sum(isinstance(fact, facts.DiskFails) for fact in play.scenario.facts)
    demand(len(found) <= broken, "failed with a good disk", found)


def troubles(play: Play) -> list[tuple[int, int]]:
    """Return the intervals in which something was wrong with the collector or the network, as pairs of ages (ns)."""
    found = _of_collector(play)
    for fact in play.scenario.facts:
        if isinstance(fact, facts.Partition):
            found.append((fact.at, fact.at + fact.duration))
        elif isinstance(fact, facts.Reset | facts.Move):
            found.append((fact.at, fact.at))
        elif isinstance(fact, facts.TableDown) and play.scenario.batch < AMPLE_BATCH:
            # Two batches are full soon. Then decoding and answers wait until the collector tries to reach the table
            # again.
            until_tried = min(RETRIED, 2 * fact.duration + SECOND)
            found.append((fact.at, fact.at + fact.duration + until_tried))
    return found


def _of_collector(play: Play) -> list[tuple[int, int]]:
    """Return the intervals in which the collector could not work, as pairs of ages (ns)."""
    found: list[tuple[int, int]] = []
    for collector in play.collectors:
        found += collector.outages + [(0, at) for at in collector.moved_away]
        found += collector.machine.stalled + collector.unfollowed
        # While two batches wait for the table, the decoder waits, too, and so does a source that was added again.
        found += [
            (since, until)
            for _, (since, until) in collector.machine.behind
            if until - since > SECOND
        ]
    if play.scenario.spool < AMPLE:
        found.append((0, play.world.age))  # Receiving waits while the spool is full.
    pauses = (f for f in play.scenario.facts if isinstance(f, facts.Suspend | facts.FullDisk))
    return found + [(fact.at, fact.at + fact.duration) for fact in pauses]


def _was_killed(play: Play, number: int, until: int) -> bool:
    """Return whether, before a given time, a program was killed, its host vanished, or another program took its
    address.
    """
    address = play.programs[number].begin.address
    return any(
        fact.at <= until
        and (
            (isinstance(fact, facts.Kill | facts.Vanish) and fact.program == number)
            or (isinstance(fact, facts.Begin) and fact.program != number and fact.address == address
                and fact.at > play.programs[number].begin.at)
        )
        for fact in play.scenario.facts
    )  # fmt: skip


def _check_balance(play: Play) -> None:
    life = play.collector.life
    assert life is not None
    try:
        for source in sorted(play.collector.names):
            assert_conserved(life.ingest, source)
    except AssertionError as error:
        raise Violation("out of balance", error) from error
    if play.collector.rotten or play.collector.losses.for_good:
        return  # The figures or the rows of some time are lost.
    unknown: Counter[str] = Counter()
    for row in play.collector.rows:
        if row["kind"] in ("gap", "heal") and row["missing"] is None:
            unknown[row["source"]] += 1 if row["kind"] == "gap" else -1
    told = {source: life.ingest.tally(source).unknown_gaps for source in unknown}
    demand(told == unknown, "another number of gaps of unknown size", (told, unknown))
