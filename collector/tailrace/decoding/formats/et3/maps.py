"""Recognise ET3 files by name, and read the documents with the names of classes, methods and fields.

| written by        | document                                   | a line                     |
|-------------------|--------------------------------------------|----------------------------|
| the agents        | methods.list, fields.list, classs.list (sic) | Class#member,id  Class,id |
| the specification | class_list, method_list, field_list        | id,name  id,class id,name  |

Overloaded methods share one id. The agents write their documents only when the program ends. An event therefore usually
refers to its names by keys like `method:31` (`NAME_OF_ROW`, `NAMES_OF_MEMBERS`)."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from functools import partial
from itertools import count
from json.encoder import encode_basestring as quote
from typing import Any, ClassVar, TypeVar
from weakref import WeakSet

import msgspec

from tailrace.decoding.contract import Files, without_gz
from tailrace.decoding.formats.et3.line import Line, read_line
from tailrace.decoding.lines import BYTE_ORDER_MARK
from tailrace.model.holding import TEXT_MAX, AskedNames, Evicted, cost

V = TypeVar("V")

NAMES_MAX = 65536
"""Maximum number of stored names of each kind (classes, methods, fields). An event shows the key instead of a name that
is not stored."""

READ_MAX = 65536
"""Maximum number of names that are read from one document, because one call returns all records of a document."""

MADE_MAX = 65536
"""Maximum number of cached texts, such as the attributes for a method, in the caches of all traces together."""

NAME_BYTES = 320
"""Memory (bytes) of a stored name, without the characters of a long name."""

DOCUMENTS = {
    "classs.list": "class",
    "methods.list": "method",
    "fields.list": "field",
    "class_list": "class",
    "method_list": "method",
    "field_list": "field",
}
"""Kind of the names in a document, by the end of the document's file name. Classes come first, because methods need
their names."""


class MapNamesState(msgspec.Struct):
    """The part of `MapNames` that a checkpoint stores."""

    names: dict[str, dict[str, str]] = {}  # Names by kind (class, method or field) and id.
    # For each key of a method or field, the id of its class, and its own name.
    members: dict[str, tuple[str, str]] = {}
    asked: dict[str, bool | None] = {}  # Keys in events whose names are not known yet.


Method = tuple[str | None, str, str]
"""The texts for the events of one method: its name or None, the JSON text of a begin's attributes as far as the key
`receiver`, and the JSON text of an end's attributes."""


class _Made(dict[str, V]):
    """A cache of the results of the function `make`, by id. If the caches of all traces have more than `MADE_MAX`
    results, all of them are cleared."""

    _all: ClassVar[WeakSet[_Made[Any]]] = WeakSet()
    _kept: ClassVar[int] = 0

    def __init__(self, make: Callable[[str], V]) -> None:
        super().__init__()
        self._make = make
        _Made._all.add(self)

    def __hash__(self) -> int:  # type: ignore[override] # a dict has none; a weak set needs it
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __missing__(self, id_: str) -> V:
        if _Made._kept >= MADE_MAX:
            for made in _Made._all:
                made.clear()
            _Made._kept = 0
        _Made._kept += 1
        value = self[id_] = self._make(id_)
        return value


_versions = count()


class MapNames:
    """The names of one trace. `methods`, `classes` and `fields` have the texts that events contain for an id.

    `version` changes when these texts change. No two traces have the same version."""

    what = Evicted.NAMES

    def __init__(self, state: MapNamesState) -> None:
        self.state = state
        self.version = next(_versions)
        self.asked = AskedNames(state.asked)
        self.evicted = 0
        self._held = sum(_cost(name) for names in state.names.values() for name in names.values())
        self._held += sum(_cost(name) for _, name in state.members.values())
        self.methods: dict[str, Method] = _Made(self._method)
        self.classes: dict[str, str] = _Made(partial(self._thing, "class"))
        self.fields: dict[str, str] = _Made(partial(self._thing, "field"))

    @property
    def held(self) -> int:
        return self._held + self.asked.held

    def give_way(self, size: int) -> None:
        """Evict the oldest names until `size` bytes are free, first those in `members`."""
        goal = self.held - size
        members = self.state.members
        for key, (_, name) in list(members.items()):
            if self.held <= goal:
                break
            del members[key]
            self._held -= _cost(name)
            self.evicted += 1
        for sort, known in self.state.names.items():
            for id_, name in list(known.items()):
                if self.held <= goal:
                    break
                del known[id_]
                self.asked.gone(f"{sort}:{id_}")
                self._held -= _cost(name)
                self.evicted += 1
        if self.held > goal:
            self.evicted += self.asked.forget()
        self._make_anew()

    def read(self, document: str, data: bytes) -> tuple[list[tuple[str, str]], int, int]:
        """Read a document and store its names. Ignore a last line without a newline, which may be incomplete.

        Return the new names by key, the number of invalid lines, and the number of names beyond `READ_MAX`."""
        kind = next((name for name in DOCUMENTS if document.endswith(name)), None)
        if kind is None:
            return [], 0, 0
        sort = DOCUMENTS[kind]
        found: dict[str, str] = {}
        bad = left_out = at = 0
        while stop := data.find(b"\n", at) + 1:
            line, at = data[at:stop], stop
            entry = _read_entry(line, name_first=kind.endswith(".list"))
            if entry is None:
                bad += bool(line.strip())
                continue
            id_, owner, name = entry
            if len(found) >= READ_MAX and id_ not in found:
                left_out += 1
                continue
            found[id_] = self._of_class(f"{sort}:{id_}", owner, name) if owner else name
        new = self._learn(sort, found)
        if sort == "class" and new:
            for member, (owner, name) in list(self.state.members.items()):
                if owner in found:
                    its_sort, _, id_ = member.partition(":")
                    new += self._learn(its_sort, {id_: f"{found[owner]}#{name}"})
        if new:
            self._make_anew()
        return new, bad, left_out

    def _make_anew(self) -> None:
        self.version = next(_versions)
        for made in (self.methods, self.classes, self.fields):
            made.clear()

    def _method(self, id_: str) -> Method:
        name = self._name("method", id_)
        late = "" if name else f'"$name":"method:{id_}",'
        return name, f'{{{late}"method_id":{id_},"receiver":', f'{{{late}"method_id":{id_}}}'

    def _thing(self, sort: str, id_: str) -> str:
        name = self._name(sort, id_)
        known = f'"{sort}":{quote(name)}' if name else f'"$late":{{"{sort}":"{sort}:{id_}"}}'
        return f'{known},"{sort}_id":{id_}'

    def _name(self, sort: str, id_: str) -> str | None:
        name = self.state.names.get(sort, {}).get(id_)
        if name is None:
            self.asked.ask(f"{sort}:{id_}")
        return name

    def _of_class(self, key: str, owner: str, name: str) -> str:
        members = self.state.members
        if len(name) <= TEXT_MAX and (key in members or len(members) < NAMES_MAX):
            self._held += _cost(name) - (_cost(members[key][1]) if key in members else 0)
            members[key] = (owner, name)
        of = self.state.names.get("class", {}).get(owner)
        return f"{of}#{name}" if of else name

    def _learn(self, sort: str, found: dict[str, str]) -> list[tuple[str, str]]:
        """Store names of one kind. Return the keys and names that are new or have changed."""
        known = self.state.names.setdefault(sort, {})
        new = {id_: name for id_, name in found.items() if known.get(id_) != name}
        for id_, name in new.items():
            self.asked.given(f"{sort}:{id_}")
            if len(name) <= TEXT_MAX and (id_ in known or len(known) < NAMES_MAX):
                self._held += _cost(name) - (_cost(known[id_]) if id_ in known else 0)
                known[id_] = name
            elif id_ not in known:
                self.asked.gone(f"{sort}:{id_}")
        return [(f"{sort}:{id_}", name) for id_, name in new.items()]


def _cost(name: str) -> int:
    return NAME_BYTES + 2 * cost(name)


def _read_entry(line: bytes, *, name_first: bool) -> tuple[str, str | None, str] | None:
    """Return the id, the class id or None, and the name in a line of a document; None for an invalid line."""
    try:
        text = line.decode().strip()
    except UnicodeDecodeError:
        return None
    owner: str | None = None
    if name_first:
        name, _, id_ = text.rpartition(",")
    else:
        id_, _, name = text.partition(",")
        first, comma, rest = name.partition(",")
        if comma and _is_id(first):
            owner, name = str(int(first)), rest
    return (str(int(id_)), owner, name) if name and _is_id(id_) else None


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 20


_TRACE = re.compile(r"(\A|\.)(trace([._].*)?|et3)\Z")
"""Pattern of the file names of traces: `trace` (all agents), NAME.trace, NAME.et3, and the names that tools give to
processed traces."""

_ADDED = re.compile(r"reordered|with_deaths")


def deaths_were_added(path: str) -> bool:
    """Return whether a file name shows that a tool has added the deaths of objects after the run."""
    return _ADDED.search(posixpath.basename(path)) is not None


def _is_trace(path: str) -> bool:
    name = without_gz(posixpath.basename(path))
    if name.startswith(".") or name.endswith(tuple(DOCUMENTS)):
        return False
    return _TRACE.search(name) is not None


def _documents(path: str) -> tuple[str, ...]:
    own = _TRACE.sub("", without_gz(posixpath.basename(path)))
    return (*DOCUMENTS, *(f"{own}.{name}" for name in DOCUMENTS if own))


def _recognises(_path: str, head: bytes) -> bool:
    """Recognise a trace by its first lines, which must have more events than unreadable lines."""
    text = head[: head.rfind(b"\n") + 1].removeprefix(BYTE_ORDER_MARK).lstrip(b"\0")
    lines = text.split(b"\n")
    read = [read_line(line, et1=False) for line in lines if line.strip()]
    events = [line for line in read if isinstance(line, Line) and line.kind in {"event", "et1"}]
    return len(events) > sum(isinstance(line, str) for line in read)


FILES = Files(
    stream=_is_trace,
    documents=_documents,
    recognises=_recognises,
    # Maximum size of a document (a file with names): 16 MiB, because large programs have many names
    document_max=16 * 2**20,
)
