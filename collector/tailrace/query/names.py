"""Name the processes and threads that wrote the streams of a store.

Each format has its own place for names. `NAMED` collects them in inner views, and `ProgramNames` makes titles of them
for exports and for the page: a name if the trace has one, otherwise an id. If several processes or threads have equal
names, their titles also contain facts that differ, such as the host."""

from __future__ import annotations

import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from tailrace.query.filters import RowCondition

_WORDS = ", ".join(
    f"max(value) FILTER (word = '{word}') AS \"{word}\""
    for word in (
        "cmd", "host", "hostname", "labels", "loom", "metadata", "ovni", "pid", "process", "process_name", "rank",
    )
)  # fmt: skip
"""SQL for the facts in `part.producer_words` that tell which program wrote a session, and where the program ran. Each
fact is JSON in a column of its own. Tailrace's clients state `process`, `pid`, `host` and `labels` when they begin a
session. DFTracer writes `process_name`, `hostname`, `cmd` and `rank`, ovni its metadata (`ovni`, or single members in
old versions), and JETS a header with `metadata`."""

SHORT_ID = 12

_THREAD_FILE = re.compile(
    r"((?:.*/)?proc\.[^/]*)/thread\.([^/]+?)(?:\.obs[^/]*|/[^/]*)$", re.DOTALL
)
"""Matches the path of an ovni file, which has the events of one thread. Old versions of ovni make no directory for each
thread."""

_PROGRAM = "nullif(regexp_replace(replace({}, ';', ' '), '^[^ ]*/', ''), '')"
"""SQL that returns a command line as text, without the directory of the program. DFTracer writes `;` between the words
of a command line."""

NAMED = f"""
-- The process that wrote each session, and the place where the process ran. `file` is the path of a session that was
-- read from a file. `alive` is whether a collector still expects events.
CREATE VIEW part.session_names AS
SELECT s.source, s.session,
  coalesce(
    w.process ->> '$', w.process_name ->> '$', {_PROGRAM.format("w.cmd ->> '$'")},
    w.metadata ->> '$.hardware_model'
  ) AS process,
  coalesce(w.pid ->> '$', w.ovni ->> '$.pid', d.pid) AS pid,
  coalesce(w.host ->> '$', w.hostname ->> '$', split_part(coalesce(w.ovni ->> '$.loom', w.loom ->> '$'), '.', 1)) AS host,
  p.node, coalesce(p.rank, try_cast(coalesce(w.rank ->> '$', w.ovni ->> '$.rank') AS BIGINT)) AS rank, p.job,
  CASE WHEN contains(o.peer, '/') THEN o.peer END AS file, r.run AS "group", r.opened,
  coalesce(c.state IN ('open', 'silent'), false) AS alive, w.labels
FROM (SELECT DISTINCT source, session FROM part.session_words) AS s
LEFT JOIN (SELECT source, session, {_WORDS} FROM part.producer_words GROUP BY ALL) AS w USING (source, session)
LEFT JOIN (
  SELECT source, session, any_value(split_part(stream, '/', 1)) AS pid
  FROM part.kept_few WHERE kind = 'session' AND format = 'dftracer' AND stream <> '' GROUP BY source, session
) AS d USING (source, session)
LEFT JOIN part.places AS p USING (source, session)
LEFT JOIN part.origins AS o USING (source, session)
LEFT JOIN part.runs AS r USING (source, session)
LEFT JOIN part.courses AS c USING (source, session);

-- The names of threads, which only DFTracer's metadata states. A stream is called PID/TID there. The tracer gives a
-- thread without a name the name TID.
CREATE VIEW part.thread_names AS
SELECT source, session, stream, arg_max(thread, "offset") AS thread
FROM (
  SELECT source, session, stream, "offset", nullif(part.member(attributes, '$.thread_name'), split_part(stream, '/', 2)) AS thread
  FROM part.kept_few WHERE kind = 'session' AND format = 'dftracer' AND stream <> ''
)
WHERE thread IS NOT NULL
GROUP BY source, session, stream;
"""  # noqa: S608 - our own words
"""SQL that defines the inner views with the names of sessions and threads."""


class StatedNames(NamedTuple):
    """The names of the program that wrote a session, and of the place where it ran. `group` is the directory or run of
    the session's `file`; `opened` is in Unix nanoseconds, and `labels` is the text of a JSON object."""

    source: str
    session: str
    process: str | None = None
    pid: str | None = None
    host: str | None = None
    node: str | None = None
    rank: int | None = None
    job: str | None = None
    file: str | None = None
    group: str | None = None
    opened: int | None = None
    alive: bool = False
    labels: str | None = None

    @property
    def place(self) -> str | None:
        """Name of the node or, outside of a job, of the host."""
        return self.node or self.host

    @property
    def label_values(self) -> dict[str, object]:
        """The labels that a client stated when it began its session, by name."""
        try:
            found = msgspec.json.decode(self.labels or "{}")
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def thread_file(self) -> tuple[str, str] | None:
        """The directory of the process and the id of the thread, if the session is the file of one thread (ovni)."""
        found = _THREAD_FILE.match(self.file or "")
        return found and (found[1], found[2])

    @property
    def title(self) -> str:
        """The rank, and the name of the process. Without a name, its process id or else the name of its file follows
        the rank. Empty if none of these is known."""
        name = self.process
        if name is None:
            name = f"process {self.pid}" if self.pid else posixpath.basename(self.file or "")
        named = (self.process or "").lower().startswith("rank ")
        rank = "" if self.rank is None or named else f"rank {self.rank}"
        return " · ".join(filter(None, (rank, name)))

    @property
    def distinctions(self) -> Sequence[str]:
        """Texts that distinguish processes with equal titles, in the order in which they are appended to the titles. A
        text is "" if it is unknown."""
        labels = ", ".join(f"{name} {value}" for name, value in self.label_values.items())
        thread = self.thread_file
        directory = posixpath.dirname(thread[0] if thread else self.file or "")
        opened = ""
        if self.opened is not None:
            time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.opened // 1000)
            opened = f"{time:%Y-%m-%d %H:%M:%S}"
        return (
            self.place or "", f"process {self.pid}" if self.process and self.pid else "", labels,
            posixpath.basename(directory), directory, opened,
        )  # fmt: skip


class ProcessNames(NamedTuple):
    """A process. `title` differs from the titles of all other processes of its source. `number` is the index of the
    process among all processes, sorted by node, source and title. `id` is unique within the source: it is the session
    or, if each thread has a session, the node and the directory of the process."""

    title: str
    number: int
    names: StatedNames
    id: str

    @property
    def session(self) -> str | None:
        """The session of the process, or None if each thread of the process has a session."""
        return None if self.names.thread_file else self.names.session

    @property
    def directory(self) -> str | None:
        """Directory of the process, if each thread of the process has a file in it."""
        found = self.names.thread_file
        return found and found[0]

    @property
    def pid(self) -> int | None:
        """The process id, or None if it is unknown or if no operating system assigns such a process id."""
        return whole_id(self.names.pid)


class ThreadNames(NamedTuple):
    """The title of a stream, and the id of its thread, or None in formats without a stream for each thread."""

    title: str
    tid: int | None = None


_Key = tuple[str, str]
"""Key of a process: its source, and its session or directory."""


class ProgramNames:
    """Titles of the processes and threads that wrote the sessions of a selection."""

    def __init__(
        self,
        sessions: Iterable[StatedNames],
        threads: dict[tuple[str, str, str], str] | None = None,
    ) -> None:
        """Use the names that `sessions` state. `threads` maps source, session and stream to the name of a thread."""
        self._sessions = {(each.source, each.session): each for each in sessions}
        self._threads = threads or {}

    @classmethod
    def read(
        cls, rows: Callable[[str, tuple[object, ...]], list[Any]], chosen: RowCondition
    ) -> ProgramNames:
        """Read the names of the sessions that match a condition on `source` and `session`. `rows` runs SQL."""
        columns = ", ".join(f'"{name}"' for name in StatedNames._fields)
        where = f"WHERE {chosen.sql}"
        named = f"SELECT {columns} FROM part.session_names {where} ORDER BY source, session"  # noqa: S608 - our own words
        sessions = rows(named, chosen.values)
        threads = rows(f"FROM part.thread_names {where}", chosen.values)
        return cls(map(StatedNames._make, sessions), {tuple(key): name for *key, name in threads})

    def process(self, source: str, session: str) -> ProcessNames:
        """Return the process that wrote a session. Sessions of one process return the same object."""
        names = self.of(source, session)
        found = self._processes.get(_process_key(names))
        return found or ProcessNames(session, len(self._processes), names, session)

    def of(self, source: str, session: str) -> StatedNames:
        """Return the names that the trace states for a session."""
        return self._sessions.get((source, session)) or StatedNames(source, session)

    def session(self, source: str, session: str) -> str:
        """Return the title of a session, which is unique in its source. It names the process and, if each thread has a
        session, the thread."""
        return self._titles.get((source, session)) or self.process(source, session).title

    @property
    def sessions(self) -> Iterable[StatedNames]:
        return self._sessions.values()

    def thread(self, source: str, session: str, stream: str, format_: str) -> ThreadNames:
        """Return the title of a stream and the id of its thread. If the format has a stream for each thread, the title
        names the thread."""
        *_, process, thread = ("", *stream.split("/"))
        has_threads = format_ == "et3" or (format_ in {"ovni", "dftracer"} and process)
        tid = whole_id(thread) if has_threads else None
        if known := self._threads.get((source, session, stream)):
            return ThreadNames(known, tid)
        if not stream:
            return ThreadNames("records" if format_ == "jets" else "(no stream)")
        if has_threads:
            return ThreadNames("main thread" if thread == process else f"thread {thread}", tid)
        return ThreadNames(f"stream {stream}" if stream.isdecimal() else stream)

    @property
    def pids(self) -> set[int]:
        """The process ids that only one process has."""
        found = Counter(each.pid for each in self._processes.values())
        return {pid for pid, count in found.items() if pid is not None and count == 1}

    @cached_property
    def _titles(self) -> dict[_Key, str]:
        """Titles of the sessions whose events all belong to one thread. Equal titles get an addition that tells them
        apart, because several sessions may have read the same file."""
        of = {key: each for key, each in self._sessions.items() if each.thread_file}
        titles = {}
        for key, each in of.items():
            _, thread = each.thread_file or ("", "")
            titles[key] = f"{self.process(*key).title} · thread {thread}"
        return _told_apart(of, titles)

    @cached_property
    def _processes(self) -> dict[_Key, ProcessNames]:
        of = {_process_key(each): each for each in reversed(self._sessions.values())}
        ids = short_ids(each.session for each in of.values())
        titles = _told_apart(of, {key: each.title or ids[each.session] for key, each in of.items()})

        def order(key: _Key) -> tuple[object, ...]:
            place = of[key].place
            return place is None, place or "", key[0], _natural(titles[key]), key

        return {
            key: ProcessNames(titles[key], number, of[key], key[1])
            for number, key in enumerate(sorted(of, key=order))
        }


def whole_id(text: str | None) -> int | None:
    """Return the id of a process or thread as a number, or None if no operating system assigns such an id."""
    if text is None or not (text.isascii() and text.isdecimal()) or len(text) > 10:
        return None
    return int(text) if 0 < int(text) < 2**31 else None


def _process_key(names: StatedNames) -> _Key:
    """Return the key of the process that wrote a session. If the session has only one thread (ovni), the key names the
    node and the directory of the process instead of the session."""
    found = names.thread_file
    return names.source, f"{names.place or ''}:{found[0]}" if found else names.session


def _told_apart(of: dict[_Key, StatedNames], titles: dict[_Key, str]) -> dict[_Key, str]:
    """Return the titles, extended by as few texts as are necessary to make each title unique within its source."""
    ids = short_ids(names.session for names in of.values())
    more = {key: (*names.distinctions, ids[names.session]) for key, names in of.items()}
    for at in range(len(StatedNames("", "").distinctions) + 1):
        alike: defaultdict[tuple[str, str], list[_Key]] = defaultdict(list)
        for key, title in titles.items():
            alike[key[0], title].append(key)
        for keys in alike.values():
            if len({more[key][at] for key in keys}) > 1:
                for key in keys:
                    titles[key] = " · ".join(filter(None, (titles[key], more[key][at])))
    return titles


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Map each id to its beginning: `SHORT_ID` characters, or as many as distinguish it from all other ids."""
    every = sorted(set(ids))
    shared = [0, *(len(posixpath.commonprefix(pair)) for pair in pairwise(every)), 0]
    return {
        each: each[: max(SHORT_ID, before + 1, behind + 1)]
        for each, before, behind in zip(every, shared, shared[1:], strict=False)
    }


def _natural(text: str) -> list[tuple[bool, int, str]]:
    """Return a key by which texts sort as people expect: numbers in them by their values."""
    parts = re.split(r"(\d{1,18})", text)
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]
