"""Check files after a play. This module shares no code with the sources of files or the decoders.

A record is stored if it stood in its file for `STAY` while the collector ran and could work. Records that stood for a
shorter time may be stored. A loss must be reported if the system ever told the collector that the bytes existed, unless
the collector was killed since then. The time at which the end of a process was reported is known only if the
collector's clock is never set.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tailrace.model.quarantine import QuarantineFrame, frames
from tests.ingest.test_machine import attributes
from tests.simulation import facts, oracle_documents
from tests.simulation.play import Play
from tests.simulation.tail import format_of
from tests.simulation.traces import TRACES, written
from tests.simulation.violation import demand, none
from tests.simulation.world import BEGIN, SECOND
from tests.simulation.writers import File

STAY = 6 * SECOND
"""Time (ns) that is longer than it takes to find a file and to read it to its end."""
START = SECOND
"""Time (ns) that is longer than it takes a collector to continue after a fault."""
UNSAYING = 2
"""Number of first bytes of a file that the checksum of its close leaves out."""
REASONS = {
    "deleted": {"deleted", "replaced"},
    "replaced": {"deleted", "replaced"},
    "emptied": {"truncated", "rewritten"},
}
"""By how a file was lost, the reasons for which its session may end."""
OF_DAMAGE = {"overwritten", "hole", "bad_member", "torn_member", "spool_damaged"}

Range = tuple[int, int]
Row = dict[str, Any]


@dataclass
class Session:
    name: str
    format: str
    owners: set[int] = field(default_factory=set)
    """The traces whose records are in the session."""
    stored: set[int] = field(default_factory=set)
    """Numbers of the records that are stored."""
    rows: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Number of rows of each record, by trace and number."""
    gaps: list[Row] = field(default_factory=list)
    """The rows about gaps, with the name of the gap as `reason`."""
    rests: list[tuple[int, Row]] = field(default_factory=list)
    """The ages (ns) at which rows state that the file is silent."""
    opened: int = 0
    """The age (ns) at which the session began."""
    close: Row | None = None
    quarantined: list[QuarantineFrame] = field(default_factory=list)

    @property
    def unfollowed(self) -> bool:
        """Return whether the last rows state that no source follows the file."""
        return self.close is None and bool(self.rests) and self.rests[-1][1]["rest"] == "unfollowed"

    def sum(self, detail: str, of: str = "count") -> int:
        return sum(gap.get(of, 0) for gap in self.gaps if gap.get("detail") == detail)


def check(play: Play, troubles: list[Range]) -> None:
    """Raise Violation for the first rule that does not hold.

    `troubles` are the intervals in which the collector could not work, as pairs of ages (ns).
    """
    files = play.yard.files
    sessions = _read(play)
    of_trace: dict[int, Session] = {}
    for session in sessions.values():
        demand(len(session.owners) <= 1, "two traces in a session", (session.name, session.owners))
        for owner in session.owners:
            demand(owner not in of_trace, "a trace in two sessions", owner)
            of_trace[owner] = session
    unread = [session for session in sessions.values() if not session.owners]
    for session in sorted(unread, key=lambda each: -each.sum("unread", "bytes")):
        # A copy that was lost may have a session of its own beside that of the original.
        others = {n: file for n, file in files.items() if n not in of_trace or file.copied}
        lost = _never_read(session, others)
        if lost is not None and lost not in of_trace:
            of_trace[lost] = session
    held = _held(play, of_trace, unread)
    for number, file in files.items():
        mine = of_trace.get(number) or Session("", file.trace.format)
        _check_stored(play, file, mine, troubles)
        lost = _lost(file, mine)
        if lost and not mine.stored and (_looks_grown(file, files) or _may_be_copied(play, file)):
            continue
        if lost and not mine.name and _was_let_go(play, file):
            continue
        waits = bool(lost) and file.gone != "emptied" and held[file.trace.format] > 0
        demand(not lost or waits, "lost without a word", (number, lost[:9]))
        held[file.trace.format] -= waits
        if mine.name:
            _check_quarantine(file, mine)
            _check_course(play, file, mine)
            _check_missing(file, mine)
    _check_documents(play, of_trace, troubles)


def _check_documents(play: Play, of_trace: dict[int, Session], troubles: list[Range]) -> None:
    def stood(begin: int, end: int) -> bool:
        return any(until - since >= STAY for since, until in _calm(begin, end, troubles))

    own = {n: s for n, s in of_trace.items() if n in s.owners}
    opened = {session.name: session.opened for session in own.values()}
    unfollowed = {session.name for session in own.values() if session.unfollowed}
    oracle_documents.check(play, {n: s.name for n, s in own.items()}, stood, opened, unfollowed)


def _read(play: Play) -> dict[str, Session]:
    sessions: dict[str, Session] = {}
    for row in play.collector.rows:
        if (format_ := format_of(row["source"])) not in TRACES:
            continue
        session = sessions.setdefault(row["session"], Session(row["session"], format_))
        if (record := written(row)) is not None:
            session.rows[record] += 1
            session.owners.add(record[0])
            session.stored.add(record[1])
            _check_place(play.yard.files, record, row)
        elif row["kind"] == "gap":
            session.gaps.append(attributes(row) | {"reason": row["name"]})
        elif row["name"] == "open":
            book = play.collector.book
            session.opened = book.opened[book.names[row["session"]]].age
        elif row["name"] == "close":
            session.close = attributes(row)
        elif row["name"] == "rest":
            session.rests.append((row["time"] - BEGIN, attributes(row)))
    for late in [each for each in sessions.values() if _is_late_copy(each, sessions, play)]:
        del sessions[late.name]
    twice = sum((session.rows for session in sessions.values()), Counter())
    none("a record stored twice", [record for record, times in twice.items() if times > 1])
    for name, kept in play.collector.machine.quarantine.frames.items():
        if name in sessions:
            whole = b"".join(kept[at] for at in sorted(kept))
            sessions[name].quarantined = list(frames(whole))
    return sessions


def _is_late_copy(session: Session, sessions: dict[str, Session], play: Play) -> bool:
    """Return whether a session read a copy of a file that was emptied, or looked so because its inode was reused, and
    whose session had ended before a restart (ARCHITECTURE.md, "Blind spots").
    """
    copied = all(play.yard.files[owner].copied for owner in session.owners)
    return copied and any(
        first.close is not None
        and first.close["closed"] in REASONS["emptied"]
        and first.owners == session.owners
        and any(
            first.close["closed_at"] - BEGIN < up < session.opened
            for _, up in play.collector.outages
        )
        for first in sessions.values()
        if first is not session
    )


def _never_read(session: Session, files: dict[int, File]) -> int | None:
    """Return the trace to which a session belongs that has no record and reports a loss. Return None if the session
    reports more.

    `files` are those without another session, and those with a packed copy. Several files may have had the session's
    inode. The result is the last one of which the collector was told this number of bytes, or otherwise the last one
    that was large enough. (So sessions that lost most are checked first.) The file was lost before the session began,
    unless something of it was read.
    """
    unread = session.sum("unread", "bytes")
    if session.close is None or not unread:
        return None
    inode, read = session.close["file"]["inode"], session.close["file"]["size"]
    found = [
        number
        for number, file in files.items()
        if file.gone
        and file.trace.format == session.format
        and inode in {file.inode, file.unpacked}
        and file.begun <= session.opened
        and (file.gone_at > session.opened if read else file.gone_at <= session.opened)
    ]
    return max(found, key=lambda n: _may_lack(files[n], inode, unread), default=None)


def _may_lack(file: File, inode: int, unread: int) -> tuple[bool, bool, int]:
    """Return a sort key that is greater for a file that more probably lost this number of bytes.

    A packed copy has another inode and another size than its original.
    """
    most = len(file.raw) if file.unpacked and inode == file.inode else _most(file)
    return min(most, max(file.sizes, default=0)) >= unread, most >= unread, file.gone_at


def _most(file: File) -> int:
    """Return the maximum size of a file, packed or not."""
    return max(len(file.raw), file.given)


def _check_place(files: dict[int, File], record: tuple[int, int], row: Row) -> None:
    trace, number = record
    file = files.get(trace)
    place = file.trace.places.get(number) if file else None
    demand(place is not None, "a record that nobody wrote", record)
    demand(place == row["offset"], "a record at another place", (record, row["offset"]))


def _check_stored(play: Play, file: File, session: Session, troubles: list[Range]) -> None:
    """Check that everything is stored that stood long enough, and that unreadable bytes are in the quarantine."""
    if _waits_for_a_place(play, file):
        return
    sure = _sure(play, file, troubles)
    # The collector has stopped, so it has read the last line even if its newline is missing.
    whole = sure + (file.trace.format == "dftracer" and not file.packed)
    records = [p for p in file.trace.pieces if p.number is not None and p.end <= whole]
    lacking = [p.number for p in records if p.number not in session.stored]
    none("a record nowhere", [(file.trace.id, number) for number in lacking])
    last = max((p.begin for p in records), default=0)
    for piece in file.trace.pieces:
        if piece.number is None and piece.end <= last:
            kept = any(
                q.offset <= piece.begin and piece.end <= q.offset + len(q.data)
                for q in session.quarantined
            )
            demand(kept, "unreadable bytes that are not kept", (file.trace.id, piece))
    torn = any(piece.begin < sure and whole < piece.end for piece in file.trace.pieces)
    open_ = session.owners and session.close is None
    if torn and open_ and not file.packed and sure == len(file.raw):
        said = [about.get("pending", 0) for _, about in session.rests]
        demand(said and said[-1] > 0, "a torn record that nobody names", (file.trace.id, sure))


def _waits_for_a_place(play: Play, file: File) -> bool:
    """Return whether there may have been more files than the collector follows at the same time."""
    others = [f for f in play.yard.files.values() if f.trace.format == file.trace.format]
    return len(others) > play.scenario.files.places


def _sure(play: Play, file: File, troubles: list[Range]) -> int:
    """Return how many bytes of the content stood long enough while the collector could work."""
    end = file.gone_at if file.gone else play.world.age
    sure = 0
    for at, size in file.readable:
        if any(until - begin >= STAY for begin, until in _calm(at, end, troubles)):
            sure = max(sure, size)
    return sure


def _calm(begin: int, end: int, troubles: list[Range]) -> Iterator[Range]:
    """Yield the intervals without faults between two times."""
    for start, until in sorted(troubles):
        if until + START > begin:
            if start > begin:
                yield begin, min(start, end)
            begin = max(begin, until + START)
    yield begin, max(begin, end)


def _looks_grown(file: File, files: dict[int, File]) -> bool:
    """Return whether a file, of which nothing was read, was emptied and has grown beyond its earlier size.

    This looks like growth (ARCHITECTURE.md, "Blind spots").
    """
    same = (f for f in files.values() if file.inode in {f.inode, f.unpacked})
    return file.gone == "emptied" and any(
        other.begun >= file.gone_at and _most(other) >= file.told for other in same
    )


def _was_let_go(play: Play, file: File) -> bool:
    """Return whether a file was lost while no source followed it, before anything of it was read."""
    behind = [
        waits for format_, waits in play.collector.machine.behind if format_ == file.trace.format
    ]
    unfollowed = [*play.collector.unfollowed, *behind]
    return any(since <= file.gone_at <= until for since, until in unfollowed)


def _may_be_copied(play: Play, file: File) -> bool:
    """Return whether another file may have been the copy of one that waited for a place (ARCHITECTURE.md, "Blind
    spots").
    """
    others = (f for f in play.yard.files.values() if f.trace.format == file.trace.format)
    return _waits_for_a_place(play, file) and any(
        other is not file
        and (not other.gone or other.gone_at > file.gone_at)
        and not _streams(file).isdisjoint(_streams(other))
        and set(other.paths) - set(file.paths)
        for other in others
    )


def _may_go_on(file: File, files: dict[int, File]) -> bool:
    """Return whether a packed file with the name of a lost file may be the beginning of its copy: except for the first
    bytes, its content so far is the same (ARCHITECTURE.md, "Blind spots").
    """
    for other in files.values():
        if other is file or other.gone or not other.packed or not _streams(file) & _streams(other):
            continue
        shown = zlib.decompressobj(wbits=31).decompress(other.raw)
        if file.trace.content[UNSAYING : len(shown)] == shown[UNSAYING:]:
            return True
    return False


def _streams(file: File) -> set[str]:
    """Return the part of a file's paths that the paths of its copies have in common."""
    names = {path.removesuffix(".gz") for path in file.paths}
    return {name.partition("/")[2] for name in names} if file.trace.format == "ovni" else names


def _held(play: Play, of_trace: dict[int, Session], unread: list[Session]) -> Counter[str]:
    """Return for each format the number of files without a name that the collector states, at its end, to keep open
    until there is a place for them. `unread` are the sessions without a record.
    """
    about = [rest["file"] for session in unread for _, rest in session.rests if "file" in rest]
    followed = {(facts["inode"], facts["path"].rpartition("/")[2]) for facts in about}
    tail = play.collector.life.tail if play.collector.life else None
    held = Counter({f: tail.without_place(f) for f in play.yard.formats} if tail else {})
    for number, file in play.yard.files.items():
        # Other files belong to no session.
        recorded = any(piece.number is not None for piece in file.trace.pieces)
        named = (file.inode, file.path.name) in followed
        waits = not file.gone and file.raw and recorded and number not in of_trace and not named
        held[file.trace.format] -= bool(waits)
    return held


def _lost(file: File, session: Session) -> list[int | None]:
    """Return the records of which the collector was told, and that are neither stored nor reported as lost.

    Also check that no more is reported as lost than existed.
    """
    unread = session.sum("unread", "bytes")
    torn = any(gap.get("detail") == "torn_member" for gap in session.gaps)
    demand(not unread or bool(file.gone), "unread and there", (file.trace.id, unread))
    if file.packed or file.moved:
        return []  # The sizes are those of other bytes.
    known = [p for p in file.trace.pieces if p.number is not None and p.end <= file.told]
    lost = [p.number for p in known if p.number not in session.stored]
    if unread and session.close:
        left = len(file.raw) - session.close["file"]["size"]
        demand(unread <= left, "more unread than there was", (file.trace.id, unread, left))
    return lost if file.gone and not unread and not torn else []


def _check_quarantine(file: File, session: Session) -> None:
    for kept in session.quarantined:
        if kept.reason == "bad_member":
            continue
        end = kept.offset + len(kept.data)
        same = file.trace.content[kept.offset : end] == kept.data
        demand(same, "other bytes in the quarantine", (file.trace.id, kept))
        good = [p.number for p in file.trace.pieces if kept.offset <= p.begin and p.end <= end]
        none("a record in the quarantine", [number for number in good if number is not None])


def _check_course(play: Play, file: File, session: Session) -> None:
    """Check that a session ends when its file does and for a true reason, and that rows call it silent only when the
    file is.
    """
    id_, close = file.trace.id, session.close
    if close is None:
        gone = file.gone and play.world.age - file.gone_at >= STAY
        goes_on = gone and _may_go_on(file, play.yard.files)
        demand(not gone or goes_on or session.unfollowed, "open, and the file is gone", id_)
    else:
        there = not file.gone and not file.copied  # A copy of what was read is recognised.
        demand(not there, "closed, and the file is there", (id_, close))
        others = (other for other in play.yard.files.values() if other is not file)
        reused = any(file.inode in {other.inode, other.unpacked} for other in others)
        reasons = set().union(*REASONS.values()) if reused or file.copied else REASONS[file.gone]
        if close["file"]["inode"] not in {file.inode, file.unpacked}:
            reasons = reasons | {
                "rewritten"
            }  # The session went on with a file that turned out to be no copy.
        demand(close["closed"] in reasons, "another end", (id_, file.gone, close))
        about = close["file"]
        content = file.trace.content[: about["size"]]
        demand(len(content) == about["size"], "read more than there was", (id_, about))
        demand(about["crc"] == zlib.crc32(content[UNSAYING:]), "another checksum", (id_, about))
    set_ = any(isinstance(f, facts.SetClock | facts.Drift) for f in play.scenario.facts)
    for at, rest in session.rests:
        if rest["rest"] == "process_gone" and not set_:
            ended = any(file.begun <= end <= at for end in play.yard.ends(file))
            demand(ended, "gone, and the process is there", (id_, at))
    damage = [gap for gap in session.gaps if gap.get("detail") in OF_DAMAGE]
    if file.packed or file.copied:
        damage = [gap for gap in damage if gap["detail"] != "torn_member"]
    none("damage that was not done", [(id_, gap) for gap in damage])


def _check_missing(file: File, session: Session) -> None:
    """Check that losses which the formats themselves show are counted, and that no end is reported as missing that was
    read.
    """
    trace = file.trace
    read = session.close["file"]["size"] if session.close else len(trace.content)
    whole = trace.ended and not session.unfollowed and read == len(trace.content)
    lacking = session.sum("unfinished") + session.sum("no_end")
    said = any(gap.get("detail") in {"unfinished", "no_end"} for gap in session.gaps)
    demand(not (said and whole), "an end is missed that was read", (trace.id, lacking))
    if session.close and session.owners and trace.format != "et3":
        demand(said or whole, "a missing end without a word", trace.id)
    garbage = sum(piece.number is None for piece in trace.pieces)
    if trace.format == "dftracer" and whole and len(session.stored) == trace.records:
        # The rows beyond `gap_rows_max` are one row, which has no detail.
        missing = sum(gap["count"] for gap in session.gaps if gap["reason"] == "network")
        expected = max(0, len(trace.skipped) - garbage)
        demand(missing == expected, "another number is missing", (trace.id, missing, expected))
    flawed = sum(gap["count"] for gap in session.gaps if gap["reason"] == "malformed")
    demand(flawed <= garbage, "more is malformed than was", (trace.id, flawed, garbage))
