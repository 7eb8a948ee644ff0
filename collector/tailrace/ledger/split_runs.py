"""Join the pieces of a producer's run that are spread over several files, for example because a tool split a trace
file.

A decoder sees one file, and reports a file without the run's first or last event as late or cut off. If another piece
contains the missing events, a row of the kind heal takes the gap back. When the run's beginning and end are known, each
id that no piece contains is reported as missing.

Operating systems reuse PIDs. Therefore a piece joins a run only if the PIDs are equal, the hosts are equal or unknown,
piece and run have no id in common, and times increase with ids. If several runs fit equally well, the piece joins none.
A piece that is read before its neighbours may join a wrong run. Two runs of one process may then each lack ids, and
their periods (from the first to the last event) overlap. In this case, no id of a run in several files is reported as
missing, because a piece of the other run may have the id. A gap `no_start` or `no_end` of unknown size is reported
instead. A copy of a piece shares ids with the run, and belongs to it if both were written at the same time; without a
known host, only if ids and times are equal. So a file that is read a second time adds no losses.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import islice, pairwise

from tailrace.ledger.references import CLAIM_MAX
from tailrace.ledger.run_pieces import (
    DoneRun,
    HeldPiece,
    IdRange,
    PiecePlace,
    RunIndex,
    SplitRun,
    SplitRunsState,
    fill,
    first_of,
    has_grown,
    overlaps,
    place_of,
    put_all,
    ranges_of,
)
from tailrace.model.gap import Finding, Reason
from tailrace.model.record import Kind, RunPiece

PLACES_MAX = 2**15
"""Maximum number of pieces (parts of a run in one file each) plus id ranges that a source remembers for unfinished
runs. Each takes about 200 bytes of memory."""

DONE_MAX = 2**12
"""Maximum number of pieces (parts of a run in one file each) that a source remembers for finished runs."""

GAPS_MAX = 256
"""Maximum number of gaps for the missing ids of one run. The last one covers all further missing ids."""

LOOKED_AT = 32
"""Maximum number of runs, newest first, that are compared with a new piece (part of a run) of the same PID."""

ANY_TIME = -(2**63), 2**63 - 1
"""Start and end time of a piece (the part of a run in one file) whose records have no times."""

_LATE = Finding(Kind.HEAL, "", None, 0, Reason.LATE_JOIN, of=Kind.SPAN, detail="no_start")
_CUT = Finding(Kind.HEAL, "", None, 0, Reason.TRUNCATED, detail="no_end")
_UNKNOWN = Finding(Kind.GAP, "", None, 0, Reason.NETWORK, of=Kind.SPAN, detail="ids")


FoundRuns = list[tuple[str, Finding]]
"""Reports of missing events (gaps) and of their later arrival (heals), each with the name of its session."""


class SplitRuns:
    """Joins the pieces of a source's runs (parts in one file each), and finds the ids that no piece contains."""

    def __init__(self, state: SplitRunsState) -> None:
        self.state = state
        self.resting: dict[str, Callable[[int], None]] = {}
        """For each open session whose file has stopped growing, a function that writes this fact again, as a row
        `rest`. The argument is the time (ns) of the spool's log, which never goes back."""
        self._run_of: dict[str, int] = {}
        self._runs_of: dict[str, dict[int, None]] = {}
        self._index: dict[int, RunIndex] = {}
        self._changed: dict[str, None] = {}
        """Open sessions for which the ingest must write another row `rest` (the file has stopped growing), because
        other files now continue their runs."""
        self._places = 0
        self._copies: set[str] = set()
        """Open sessions whose file repeats a part of a complete run."""
        self._done_of: dict[str, list[DoneRun]] = {}
        for done in state.done:
            self._done_of.setdefault(done.pid, []).append(done)
        self._done_places = sum(len(done.pieces) for done in state.done)
        for number, run in state.runs.items():
            self._runs_of.setdefault(run.pid, {})[number] = None
            self._run_of |= dict.fromkeys(run.pieces, number)
            self._places += sum(map(_places, run.pieces.values()))
            self._index[number] = RunIndex(run)

    def goes_on(self, session: str) -> bool:
        """Return whether other files contain the run's events before and after those in a session's file, or no such
        events can exist."""
        number = self._run_of.get(session)
        return session in self._copies if number is None else self._index[number].goes_on(session)

    def take_back(self, session: str, first: int, last: int) -> list[IdRange]:
        """Record that ids which this session reported as missing no longer count as missing. Return those of them that
        no other file of the run has contained so far."""
        run = self.state.runs.get(self._run_of.get(session, -1))
        if run is not None and run.judged:
            return fill(run.claims, first, last) if run.ends == session else []
        return [] if run is None and session in self._copies else [IdRange(first, last)]

    def tell(self, now: int) -> None:
        """Write another row `rest` (the file has stopped growing) for each file whose run other files now continue."""
        while self._changed:
            session = next(iter(self._changed))
            del self._changed[session]
            self.resting.get(session, int)(now)

    def alone(self, session: str) -> None:
        """Forget the part of a run in a session's file if no other part of the run is known, because no further part
        will follow."""
        self._copies.discard(session)
        number = self._run_of.get(session)
        if number is not None and len(self.state.runs[number].pieces) == 1:
            self._forget(number)

    def replaced(self, session: str) -> None:
        """Forget all parts of runs in a session's file, because the file will be read again from the beginning."""
        changed = set[int]()
        for name in [name for name in self._run_of if name.partition(".")[0] == session]:
            number = self._run_of[name]
            run = self.state.runs[number]
            if len(run.pieces) == 1:
                changed.discard(number)
                self._forget(number)
                continue
            changed.add(number)
            del self._run_of[name]
            held = run.pieces.pop(name)
            self._places -= _places(held)
            run.open -= held.open
            run.late, run.cut = ([n for n in names if n != name] for names in (run.late, run.cut))
            if run.ends == name:
                run.ends, run.last, run.claims, run.judged = "", 0, [], False
        for number in changed:
            run = self.state.runs[number]
            run.ranges = ranges_of(run)
            self._index[number] = RunIndex(run)

    def take(self, session: str, piece: RunPiece, times: tuple[int, int], said: str) -> FoundRuns:
        """Record `piece`, the part of a run that a session's file now contains. Return new gaps, and heals (which take
        gaps back). `times` are the times of the piece's first and last event. `said` is the reason of the gap that the
        decoder reported for it, or ""."""
        number = self._run_of.get(session)
        held = HeldPiece(piece, *times)
        if number is None and piece.ranges and self._is_done(held):
            self._copies.add(session)
            return _taken_back(session, held, said)
        self._copies.discard(session)
        known = number is not None
        if number is None:
            number = self._find(session, piece, *times)
        if number is None:
            number = self.state.following
            self.state.following += 1
            self.state.runs[number] = SplitRun(piece.pid, piece.host)
            self._runs_of.setdefault(piece.pid, {})[number] = None
            self._index[number] = RunIndex(self.state.runs[number])
        run, index = self.state.runs[number], self._index[number]
        self._run_of[session] = number
        found = self._add(number, session, held)
        if not piece.ranges and not run.doubted:
            known = any(
                other.doubted and other.host in ("", run.host) for other in self._alike(run)
            )
            run.doubted = True
            for other in () if known else self._alike(run):
                found += [(other.ends, _missing(Kind.HEAL, claim)) for claim in other.claims]
                other.claims = []
        if said == Reason.NETWORK or (piece.settled and not known):
            claimed = self._claimed(run, session, held)
            # Take back only gaps that the decoder reports now. Gaps that it reported earlier may have been taken back
            # already, before the run was forgotten and created again.
            found += claimed if said else []
        elif said:
            (run.late if said == Reason.LATE_JOIN else run.cut).append(session)
        if piece.last and not run.ends:
            run.ends, run.last = session, piece.last
        names = self._index[number].place(session)
        if self._index[number] is not index:
            names = [name for name in run.pieces if not index.goes_on(name) and name != session]
        self._changed |= dict.fromkeys(
            name.partition(".")[0] for name in names if run.pieces[name].open and self.goes_on(name)
        )
        found += self._judge_all(number)
        while self._places > PLACES_MAX and len(self.state.runs) > 1:
            self._forget(next(iter(self.state.runs)))
        return found

    def _claimed(self, run: SplitRun, session: str, held: HeldPiece) -> FoundRuns:
        """Record the ids that a decoder found missing in a file that has the run's first and last event. Return heals
        (records that take gaps back) for those of these ids that other files contain. If missing ids of the run were
        reported before, return heals for all ids that this decoder found missing."""
        if run.judged:
            return _taken_back(session, held, Reason.NETWORK)
        run.ends, run.last, run.judged = session, held.piece.last, True
        run.claims = _claims_of(held)
        others = (each.piece.ranges for name, each in run.pieces.items() if name != session)
        came = [each for ranges in others for ids in ranges for each in fill(run.claims, *ids)]
        return [(session, _missing(Kind.HEAL, each)) for each in came]

    def _is_done(self, held: HeldPiece) -> bool:
        """Return whether a new piece (the part of a run in one file) repeats a part of a complete run. If both hosts
        are known, the hosts must be equal, and ids and times must overlap. Otherwise, ids and times must be equal."""
        piece, ranges = held.piece, held.piece.ranges
        if (held.since, held.until) == ANY_TIME:
            return False
        same = place_of(held)
        for done in islice(reversed(self._done_of.get(piece.pid, [])), LOOKED_AT):
            if ranges[-1][1] > done.last or piece.last not in (0, done.last):
                continue
            if done.host and done.host == piece.host:
                if any(_meet(each, same) for each in done.pieces):
                    return True
            elif _same(done.host, piece.host) and same in done.pieces:
                return True
        return False

    def over(self, session: str) -> None:
        """Record that a session receives no more data. Reduce its run to ids and times if it is complete and closed.
        Forget the oldest such runs above `DONE_MAX` pieces (parts in one file each)."""
        self._copies.discard(session)
        number = self._run_of.get(session)
        if number is None or not self.state.runs[number].pieces[session].open:
            return
        run = self.state.runs[number]
        run.pieces[session].open = False
        run.open -= 1
        if run.open or not run.whole or len(run.ranges) > 1:
            return
        self._forget(number)
        pieces = [place_of(held) for held in run.pieces.values() if held.piece.ranges]
        done = DoneRun(run.pid, run.host, run.last, pieces)
        self.state.done.append(done)
        self._done_of.setdefault(run.pid, []).append(done)
        self._done_places += len(pieces)
        while self._done_places > DONE_MAX:
            oldest = self.state.done.pop(0)
            self._done_places -= len(oldest.pieces)
            of_pid = self._done_of[oldest.pid]
            del of_pid[0]
            if not of_pid:
                del self._done_of[oldest.pid]

    def _forget(self, number: int) -> None:
        run = self.state.runs.pop(number)
        self._places -= sum(map(_places, run.pieces.values()))
        for session in run.pieces:
            del self._run_of[session]
        del self._runs_of[run.pid][number], self._index[number]
        if not self._runs_of[run.pid]:
            del self._runs_of[run.pid]

    def _find(self, session: str, piece: RunPiece, since: int, until: int) -> int | None:
        """Return the run to which a new piece (the part of a run in one file) belongs; None if no run fits, or several
        fit equally well."""
        runs = self.state.runs
        known = reversed(self._runs_of.get(piece.pid, {}))
        known_there = (n for n in known if _same(runs[n].host, piece.host))
        some = islice(known_there, LOOKED_AT)
        fits = {n: _fits(self._index[n], session, piece, since, until) for n in some}
        suiting = [n for n, fit in fits.items() if fit == max(fits.values())]
        return suiting[0] if len(suiting) == 1 and fits[suiting[0]] else None

    def _add(self, number: int, session: str, held: HeldPiece) -> FoundRuns:
        """Add the part of a run in a session's file to the run, or replace the part. If the part contains ids that were
        reported as missing, return heals, which take these gaps back."""
        run, index = self.state.runs[number], self._index[number]
        before = run.pieces.get(session)
        held.copy = before.copy if before else overlaps(run.ranges, held.piece.ranges)
        run.pieces[session], run.host = held, run.host or held.piece.host
        self._places += _places(held) - (_places(before) if before else 0)
        run.open += before is None
        index.counting += held.piece.counts - (before.piece.counts if before else 0)
        known = before and (before.since, before.until, before.piece.ranges)
        if known == (held.since, held.until, held.piece.ranges):
            return []
        if not before or has_grown(before, held):
            put_all(run.ranges, [held])
            index.put(session, before)
        else:
            run.ranges = ranges_of(run)
            self._index[number] = RunIndex(run)
        came = [each for ids in held.piece.ranges for each in fill(run.claims, *ids)]
        return [(run.ends, _missing(Kind.HEAL, each)) for each in came]

    def _judge_all(self, number: int) -> FoundRuns:
        """Return the findings for a run that has changed, and for the other runs of its process, because `_is_unsure`
        compares each of these with the changed run."""
        others = islice(reversed(self._runs_of[self.state.runs[number].pid]), LOOKED_AT)
        found = self._judge(number)
        for other in [n for n in others if n != number and self.state.runs[n].whole]:
            found += self._judge(other)
        return found

    def _judge(self, number: int) -> FoundRuns:
        """Return the findings from all known parts of a run: gaps for ids that no file contains, and heals, which take
        gaps back."""
        found: FoundRuns = []
        run = self.state.runs[number]
        unsure = self._is_unsure(number)
        if unsure and run.judged:
            found += [(run.ends, _missing(Kind.HEAL, claim)) for claim in run.claims]
            run.claims, run.judged = [], False
        if unsure and not (run.late or run.cut):
            run.cut.append(run.ends)
            found.append((run.ends, _CUT._replace(kind=Kind.GAP)))
        for heal, names, known, outermost in (
            (_LATE, run.late, run.begins and not unsure, min),
            (_CUT, run.cut, bool(run.ends) and not unsure, max),
        ):
            kept = (
                [outermost(names, key=lambda name: run.pieces[name].piece.ranges)]
                if names and not known
                else []
            )
            found += [(name, heal) for name in names if name not in kept]
            names[:] = kept
        waits = run.whole and run.pieces[run.ends].piece.waits
        # Report missing ids only if they certainly stand for missing events: the decoder of at least one piece knows
        # that the ids number the run's events, and no piece of the process lacks ids.
        due = run.whole and not (run.judged or waits or unsure) and self._index[number].counting
        if due and not any(other.doubted for other in self._alike(run)):
            run.judged = True
            holes = list(_holes(run))
            run.claims = [each for each in holes if each.last - each.first < CLAIM_MAX]
            found += [(run.ends, gap) for gap in _gaps(run.claims)]
            found += [(run.ends, _UNKNOWN)] * (len(run.claims) < len(holes))
        return found

    def _is_unsure(self, number: int) -> bool:
        """Return whether the ids that all files of a run lack may be in files of other runs of the process."""
        runs, run = self.state.runs, self.state.runs[number]
        if not run.whole or run.pieces[run.ends].piece.settled or run.is_complete:
            return False
        known = (n for n in reversed(self._runs_of[run.pid]) if _same(runs[n].host, run.host))
        others = (n for n in islice(known, LOOKED_AT) if n != number and runs[n].ranges)
        index = self._index[number]
        return any(self._index[n].meets(index) and not runs[n].is_complete for n in others)

    def _alike(self, run: SplitRun) -> Iterator[SplitRun]:
        """Yield `run` and all runs that may be of the same process, newest first."""
        others = (self.state.runs[number] for number in reversed(self._runs_of[run.pid]))
        return (other for other in others if _same(other.host, run.host))


def _places(held: HeldPiece) -> int:
    return 1 + len(held.piece.ranges)


def _same(host: str, other: str) -> bool:
    return host == other or not host or not other


def _fits(index: RunIndex, session: str, piece: RunPiece, since: int, until: int) -> int:
    """Return how well a piece (the part of a run in one file) fits a run: 3 for shared ids, 2 for adjacent ids, 1 if it
    may fit, 0 if it cannot."""
    run = index.run
    if not run.ranges or not piece.ranges or not _same(run.host, piece.host):
        return 0
    if overlaps(run.ranges, piece.ranges):
        return 3 * (_is_known(index, piece, since, until) and not index.has_file(session))
    beyond = run.last and (piece.last or piece.ranges[-1][1] > run.last)
    if beyond or (piece.last and run.ranges[-1].last > piece.last):
        return 0
    fit = 1
    for first, last in piece.ranges:
        at = bisect_right(run.ranges, first, key=first_of)
        for below in run.ranges[max(at - 1, 0) : at]:
            if below.since > until:
                return 0
            fit = max(fit, 1 + (below.last + 1 == first))
        for above in run.ranges[at : at + 1]:
            if since > above.until:
                return 0
            fit = max(fit, 1 + (last + 1 == above.first))
    return fit


def _is_known(index: RunIndex, piece: RunPiece, since: int, until: int) -> bool:
    """Return whether times and host prove that a piece (the part of a run in one file) belongs to the given run, with
    which it has ids in common."""
    run = index.run
    if (since, until) == ANY_TIME or (run.last and piece.last not in (0, run.last)):
        return False
    place = piece.ranges[0][0], piece.ranges[-1][1], since, until
    known = bool(run.host) and run.host == piece.host
    if known and any(_meet(place_of(each), place) for each in index.likely(since)):
        return True
    same = piece.ranges, since, until
    return any((each.piece.ranges, each.since, each.until) == same for each in index.likely(since))


def _meet(known: PiecePlace, new: PiecePlace) -> bool:
    """Return whether the ids and the times of two pieces (parts of runs in one file each) overlap; False if a piece has
    no times."""
    first, last, since, until = known
    if first > new[1] or new[0] > last or (since, until) == ANY_TIME:
        return False
    within = since <= new[2] and new[3] <= until
    return within or max(since, new[2]) < min(until, new[3])


def _claims_of(held: HeldPiece) -> list[IdRange]:
    """Return the ids that the decoder reports as missing in a file that has the run's first and last event. Return no
    ids if there are more than `CLAIM_MAX`, because the gap then has an unknown size."""
    alone = SplitRun("", "", {"": held}, last=held.piece.last)
    put_all(alone.ranges, [held])
    holes = list(_holes(alone))
    few = sum(each.last - each.first + 1 for each in holes) <= CLAIM_MAX
    return holes if few else []


def _taken_back(session: str, held: HeldPiece, said: str) -> FoundRuns:
    """Return findings that take back the gaps that a decoder reported for the part of a run in a session's file. `said`
    is the reason of these gaps, or "" if the decoder reported no gap."""
    if said == Reason.NETWORK:
        return [(session, _missing(Kind.HEAL, each)) for each in _claims_of(held)]
    return [(session, _LATE if said == Reason.LATE_JOIN else _CUT)] if said else []


def _holes(run: SplitRun) -> Iterator[IdRange]:
    """Yield the ids of a complete run that no file contains, as ranges. Leave out one id for each malformed record,
    because the record may have had this id."""
    explained = sum(held.piece.unnumbered for held in run.pieces.values() if not held.copy)
    for before, behind in pairwise([*run.ranges, IdRange(run.last + 1, 0)]):
        first, last = before.last + 1, min(behind.first - 1, run.last)
        used = min(explained, max(last - first + 1, 0))
        explained -= used
        if first + used <= last:
            yield IdRange(first + used, last)


def _gaps(holes: list[IdRange]) -> Iterator[Finding]:
    one_by_one = holes if len(holes) <= GAPS_MAX else holes[: GAPS_MAX - 1]
    yield from (_missing(Kind.GAP, each) for each in one_by_one)
    if rest := holes[len(one_by_one) :]:
        count = sum(each.last - each.first + 1 for each in rest)
        gap = _missing(Kind.GAP, rest[0])
        yield gap._replace(events=count, detail="scattered_ids", last=rest[-1].last)


def _missing(kind: Kind, ids: IdRange) -> Finding:
    count = ids.last - ids.first + 1
    return Finding(kind, "", ids.first, count, Reason.NETWORK, of=Kind.SPAN, detail="ids")
