"""Check the documents beside files after a play.

- If the last program's document stood beside its file for `STAY`, while the collector could work and the session was
  open, its content is in the rows of the session.
- The rows contain no name that was never written beside a session's file. (It may be the name of the next program, if
  that began at the same path: ARCHITECTURE.md, "Blind spots".)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

from tests.ingest.test_machine import attributes
from tests.simulation.play import Play
from tests.simulation.traces import CLASS, TRACES
from tests.simulation.violation import demand
from tests.simulation.writers import File

CLOCK_STEPS = 100
"""More than the time (ns) between the end of a file and the beginning of the file for which it was emptied. Each look at
the simulated clock takes a nanosecond."""


def check(
    play: Play,
    of_trace: Mapping[int, str],
    stood: Callable[[int, int], bool],
    opened: Mapping[str, int],
    unfollowed: set[str],
) -> None:
    """Raise Violation for the first rule that does not hold.

    `of_trace` has the name of each trace's session. `stood` returns whether there was enough time between two ages
    (ns). `opened` has the beginnings of sessions. `unfollowed` has the sessions whose files no source follows, or has a
    place for.
    """
    told = _told(play)
    for (format_, _), document in play.yard.documents.items():
        file, session = play.yard.files[document.trace], of_trace.get(document.trace, "")
        stays = not (file.gone or file.paths[1:] or file.copied)
        if stays and session and session not in unfollowed and file.trace.ended:
            since = max(document.at, opened[session])
            known = document.trace in told[session] or not stood(since, play.world.age)
            demand(known, "a document that is not told", (format_, document, session))
    _check_names(play, told, of_trace)


def _told(play: Play) -> defaultdict[str, set[int]]:
    """Return for each session the traces whose last document is in its rows."""
    told = defaultdict[str, set[int]](set)
    for row in play.collector.rows:
        if row["format"] == "et3" and row["kind"] == "name":
            told[row["session"]].add(int(row["name"].removeprefix(CLASS)))
        elif row["format"] == "ovni" and row["name"] == "metadata":
            about = attributes(row)["producer"]["ovni"]
            if about.get("finished"):
                told[row["session"]].add(about["app_id"])
    return told


def _check_names(play: Play, told: Mapping[str, set[int]], of_trace: Mapping[int, str]) -> None:
    files = play.yard.files
    for trace, session in of_trace.items():
        beside = TRACES[files[trace].trace.format].beside
        places = {beside(path) for path in _paths(files[trace], files)}
        for number in told.get(session, ()):
            writer = files[number].trace
            there = writer.ended and beside(writer.path) in places
            demand(there, "a document from elsewhere", (trace, number))


def _paths(file: File, files: Mapping[int, File]) -> set[str]:
    """Return the paths that a file's inode had, including the paths from before the file was emptied."""
    emptied = (
        other
        for other in files.values()
        if other.gone == "emptied"
        and other.inode == file.inode
        and other.begun < other.gone_at <= file.begun < other.gone_at + CLOCK_STEPS
    )
    return set(file.paths).union(*(_paths(other, files) for other in emptied))
