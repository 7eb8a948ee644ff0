"""A wrong setting: where it was written, what is wrong, and what is allowed."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

ENVIRONMENT = "environment"
DEFAULT = "default"

_BARE = re.compile(r"[A-Za-z0-9_-]+")


class Where(NamedTuple):
    """The place where a setting was written. `origin` is the file's path, `environment`, `default`, or
    empty for an option of the command line. `key` is spelled as it was written there. Lines count from
    1."""

    origin: str
    line: int | None
    key: str

    def __str__(self) -> str:
        place = self.origin if self.line is None else f"{self.origin}:{self.line}"
        return ": ".join(part for part in (place, self.key) if part)


class Setting(NamedTuple):
    value: object
    where: Where


class Problem(NamedTuple):
    """One problem. It prints as one line: `file:line: key: what is wrong; what is allowed`."""

    where: Where
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


def dotted(path: tuple[str, ...]) -> str:
    """Return `("sources", "a b")` as `sources."a b"`, on one line whatever the names contain."""
    return ".".join(name if _BARE.fullmatch(name) else json.dumps(name) for name in path)
