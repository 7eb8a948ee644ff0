"""Store the names that one DFTracer file gives to hashes, up to a limit."""

from __future__ import annotations

from itertools import count
from json.encoder import encode_basestring as quote

from tailrace.model.holding import TEXT_MAX, AskedNames, Evicted, cost

NAMES_MAX = 4096
"""Maximum number of stored names. Beyond it, the oldest name is removed. Later events then have its key, with which the
SQL views find the name."""

NAME_BYTES = 448
"""Memory (bytes) of a stored name, if the name and its key are short."""

LATE = "$late"
"""Name of the attribute in which an event has the keys of its unknown names."""

_versions = count()


class HashNames:
    """The names of hashes, as JSON texts. A key is `FH:`, `HH:` or `SH:`, followed by a hash.

    While `version` is unchanged, `members` returns equal results for equal hashes, so that the kernel may cache them.
    No two instances share a version. The oldest names are evicted first."""

    what = Evicted.NAMES

    def __init__(self, known: dict[str, str], asked: dict[str, bool | None]) -> None:
        self.known = known
        self.asked = AskedNames(asked)
        self.version = next(_versions)
        self._lacked = False
        self.evicted = 0
        self._texts = sum(map(_texts, known.items()))

    @property
    def held(self) -> int:
        return NAME_BYTES * len(self.known) + self._texts + self.asked.held

    def give_way(self, size: int) -> None:
        goal = self.held - size
        while self.known and self.held > goal:
            self._evict()
            self.evicted += 1
        if self.held > goal:
            self.evicted += self.asked.forget()

    def define(self, key: str, name: str) -> None:
        self.asked.given(key)
        if key in self.known:
            self._forget(key)
        elif self._lacked:
            self.version, self._lacked = next(_versions), False
        if len(name) > TEXT_MAX or len(key) > TEXT_MAX:
            self.asked.gone(key)
            return
        if len(self.known) >= NAMES_MAX:
            self._evict()
        text = self.known[key] = quote(name)
        self._texts += _texts((key, text))

    def members(self, file: str | None, host: str | None) -> list[bytes]:
        """Return the JSON members `fname`, `hostname` and `$late` (hashes whose names are not known yet) for the file
        and host of an event, each after a comma."""
        keys = (("fname", "FH:", file), ("hostname", "HH:", host))
        wanted = {member: kind + hash_ for member, kind, hash_ in keys if hash_ is not None}
        self._lacked = self._lacked or not self.known.keys() >= set(wanted.values())
        found = self.resolve(wanted)
        return [
            joined({member: found[member]} if member in found else {}).encode()
            for member in ("fname", "hostname", LATE)
        ]

    def resolve(self, wanted: dict[str, str]) -> dict[str, str]:
        """Return the names of hashes as JSON texts, by attribute. The attribute `$late` has the keys of the hashes
        whose names are not known yet."""
        names = self.known
        known = {member: names[key] for member, key in wanted.items() if key in names}
        unknown = {member: key for member, key in wanted.items() if member not in known}
        if not unknown:
            return known
        for key in unknown.values():
            self.asked.ask(key)
        late = [f"{quote(member)}:{quote(key)}" for member, key in unknown.items()]
        return known | {LATE: "{" + ",".join(late) + "}"}

    def _evict(self) -> None:
        oldest = next(iter(self.known))
        self._forget(oldest)
        self.asked.gone(oldest)

    def _forget(self, key: str) -> None:
        self.version = next(_versions)
        self._texts -= _texts((key, self.known.pop(key)))


def joined(members: dict[str, str]) -> str:
    """Return members of a JSON object as one text, with a comma before each member."""
    return "".join(f',"{member}":{text}' for member, text in members.items())


def _texts(named: tuple[str, str]) -> int:
    return cost(named[0]) + cost(named[1])
