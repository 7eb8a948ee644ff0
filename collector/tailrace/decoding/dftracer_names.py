"""The names behind the hashes of one DFTracer file, as far as they are remembered."""

from __future__ import annotations

from json.encoder import encode_basestring as quote

NAMES_MAX, LENGTH_MAX = 4096, 1024
"""At most about 4 MiB a file. The views find what is not remembered."""


class Names:
    """Names as JSON texts by their key: `FH:`, `HH:` or `SH:` and the hash. The oldest go first."""

    def __init__(self, known: dict[str, str]) -> None:
        self.known = known

    def define(self, key: str, name: str) -> None:
        """What `key` stands for from now on; the last one said counts."""
        self.known.pop(key, None)
        if len(name) > LENGTH_MAX or len(key) > LENGTH_MAX:
            return
        if len(self.known) >= NAMES_MAX:
            del self.known[next(iter(self.known))]
        self.known[key] = quote(name)

    def resolve(self, wanted: dict[str, str]) -> dict[str, str]:
        """Members and their JSON texts, for members and the keys that they ask for: the names that
        are known, and under `$late` the keys of those that are not."""
        known = {member: self.known[key] for member, key in wanted.items() if key in self.known}
        late = [f"{quote(m)}:{quote(key)}" for m, key in wanted.items() if m not in known]
        return known | {"$late": "{" + ",".join(late) + "}"} if late else known
