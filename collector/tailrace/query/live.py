"""Ask the running collectors of a store which events they still await. The table does not show this."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import structs

from tailrace.config.load import shared_path, spool_path
from tailrace.config.schema import MAIN, OWN_SOURCE, Config
from tailrace.errors import NoAnswerError, TailraceError
from tailrace.query.filters import Selection
from tailrace.store import presence
from tailrace.store.presence import RunningCollector, directories, find, is_finished, is_import

if TYPE_CHECKING:
    from tailrace.query.engine import Engine


class AwaitedEvents(NamedTuple):
    """The number of events of one stream for which a collector still waits. `session` and `stream` are None if they are
    unknown."""

    source: str
    format: str
    session: str | None
    stream: str | None
    events: int


class Live(NamedTuple):
    """The merged reports of all running collectors of a store.

    - `sources`: the names of the collectors' sources, including sources without rows in the table.
    - `awaited`: the events for which the collectors still wait.
    - `unasked`: why a collector did not answer, or "". The other fields still have the answers of the other collectors,
      unless the reason is `OVERTAKEN`: then no answer matches a version of the table.
    - `here`: the identities of all collectors with a directory on this host."""

    sources: frozenset[str] = frozenset()
    awaited: tuple[AwaitedEvents, ...] = ()
    unasked: str = ""
    here: frozenset[str] = frozenset()

    def of(self, selection: Selection) -> list[AwaitedEvents]:
        """Return those awaited events that may belong to the sources, sessions and streams of a selection."""
        sources, sessions, streams, *_ = selection
        return [
            each
            for each in self.awaited
            if (sources is None or each.source in sources)
            and (sessions is None or each.session is None or each.session.startswith(sessions))
            and (streams is None or each.stream in {None, "", *streams})
        ]


NOBODY = Live()

UNFINISHED = (
    "{whose} was killed, and its next start will commit what it had received;"
    " or it runs where this process cannot see it (in another container or on another host)"
)

UNREAD = (
    "an import into this store did not read its files to their end; repeat the same command to continue it;"
    " or it runs where this process cannot see it (in another container or on another host)"
)

OVERTAKEN = "the table had a newer version each time after the collector had answered"

TRIES = 10
"""Maximum number of times that the collectors are asked. They are asked again if the table has got a newer version
meanwhile."""

LiveLook = Callable[[], Live]


class _Stream(msgspec.Struct):
    session: str
    stream: str
    events: int


class _Source(msgspec.Struct):
    format: str
    awaited_events: int
    awaited: list[_Stream]


class _Heartbeat(msgspec.Struct):
    interval_seconds: float


class _Status(msgspec.Struct):
    """The fields of a collector's status page (`figures.Status`) that this module reads."""

    sources: dict[str, _Source]
    heartbeat: _Heartbeat


T = TypeVar("T", bound=msgspec.Struct)


class Asked(NamedTuple, Generic[T]):
    """The answers of a store's running collectors, by name. `unasked` is a text for users about collectors that did
    not answer or cannot be seen by this process, or "". `here` has the identities of the collectors with a directory
    on this host."""

    answers: dict[str, T]
    unasked: str
    here: frozenset[str] = frozenset()


def look(config: Config, environ: Mapping[str, str] = os.environ) -> Live:
    """Ask the running collectors of the configuration's store which events they still await, and merge their answers.
    The result may be newer than a snapshot of the table; `beside` returns a result that matches a snapshot."""
    answers, unasked, here = ask(config, _Status, environ)
    sources: set[str] = set()
    awaited: list[AwaitedEvents] = []
    for status in answers.values():
        sources |= status.sources.keys()
        sources |= {OWN_SOURCE} if status.heartbeat.interval_seconds else set()
        for name, source in status.sources.items():
            rest = source.awaited_events
            for each in source.awaited:
                awaited.append(AwaitedEvents(name, source.format, *structs.astuple(each)))
                rest -= each.events
            if rest > 0:
                awaited.append(AwaitedEvents(name, source.format, None, None, rest))
    return Live(frozenset(sources), tuple(awaited), unasked, here)


def ask(config: Config, type_: type[T], environ: Mapping[str, str] = os.environ) -> Asked[T]:
    """Ask each collector of the store that may run on this host for its status. Return the fields of each status that
    the struct `type_` defines."""
    shared = shared_path(config, environ)
    answers: dict[str, T] = {}
    unasked: list[str] = []
    try:
        found = directories(shared)
    except OSError as error:
        return Asked({}, f"{shared}: nobody can tell which collectors run: {error.strerror}")
    for name, directory in found.items():
        own = [Path(spool_path(config, environ))] if name == config.collector.name else []
        daemon = find(directory, [directory, *own], name=name)
        if daemon is None:
            if not is_finished(directory):
                whose = "the last collector of this store" if name == MAIN else f"collector {name}"
                unasked.append(UNREAD if is_import(directory) else UNFINISHED.format(whose=whose))
            continue
        try:
            answers[name] = _status(config, daemon, type_)
        except NoAnswerError as error:
            unasked.append(str(error))
    known = filter(None, map(presence.introduction_of, found.values()))
    return Asked(answers, "; ".join(unasked), frozenset(who.identity for who in known))


def beside(snapshot: Engine, ask: LiveLook) -> Live:
    """Return which events the running collectors await, for the newest version of the table. Call `ask`, then move the
    snapshot to the newest version; repeat both while there was a newer version. Collectors on other hosts cannot be
    asked; the result's `unasked` names those that may still run."""
    from tailrace.query.collectors import elsewhere  # noqa: PLC0415 - DuckDB, only where there is a table

    for _ in range(TRIES):
        live = ask()
        # If the table has no newer version, `live` has each event that the collectors await, except those that the
        # snapshot contains or reports as missing.
        if not snapshot.refresh():
            break
    else:
        live = Live(unasked=OVERTAKEN, here=live.here)
    others = elsewhere(snapshot, live.here)
    return (
        live._replace(unasked="; ".join(filter(None, (live.unasked, others)))) if others else live
    )


def _status(config: Config, daemon: RunningCollector, type_: type[T]) -> T:
    from tailrace.query import admin  # noqa: PLC0415 - HTTP and TLS, only where a collector runs

    which = "the collector" if daemon.name == MAIN else f"collector {daemon.name}"
    who = f"{which} that runs on this store (process {daemon.pid})"
    if not daemon.addresses.get("admin"):
        raise NoAnswerError(f"{who} has no admin endpoint")
    try:
        text = admin.page(config.admin, daemon.addresses["admin"], "/status?format=json")
        return msgspec.json.decode(text, type=type_)
    except (OSError, TailraceError, msgspec.DecodeError, ValueError) as error:
        why = f"{who} did not answer: {error}; is --config its configuration?"
        raise NoAnswerError(why) from error
