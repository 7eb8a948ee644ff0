"""Where each session's file goes: as the files lay there, below the deepest directory that has all of a source's."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from tailrace.decoding.contract import without_gz
from tailrace.decoding.formats import FORMATS
from tailrace.store.quarantine import SUFFIX, file_name

PACKED = ".gz"


class Origin(NamedTuple):
    """A session, without its restarts, and the path of its file; `damaged` is a compressed file with damage."""

    source: str
    session: str
    format: str
    path: str | None
    damaged: bool = False


def placed(origins: Iterable[Origin]) -> dict[Origin, PurePosixPath]:
    """Return a name for each session's file: `SOURCE/PATH` for a file's, else `SOURCE/SESSION.SUFFIX`. A compressed file
    keeps its `.gz` only where its producer compresses files, or where only compressed bytes show what it lacks.

    Where two sessions had one path, as when a file was read again, the later one gets a directory of its own."""
    names: dict[Origin, PurePosixPath] = {}
    sources = defaultdict(list)
    for origin in origins:
        sources[origin.source].append(origin)
    for source, mine in sources.items():
        paths = [(origin, _path(origin)) for origin in mine]
        base = _base([(origin, path) for origin, path in paths if path is not None])
        taken: set[str] = set()
        for origin, path in paths:
            session = file_name(origin.session).removesuffix(SUFFIX)
            name = session + _suffix(origin) if path is None else posixpath.relpath(path, base)
            name += PACKED if _packed(origin) else ""
            name = posixpath.join(session, name) if name in taken else name
            taken.add(name)
            names[origin] = PurePosixPath(source, name)
    return names


def beside(name: PurePosixPath, document: str) -> PurePosixPath:
    """Return the name of a document beside a session's file. None leads out of the source's directory."""
    source, *within = name.parts
    path = posixpath.normpath(posixpath.join("/", *within[:-1], document))
    return PurePosixPath(source, path.lstrip("/"))


def _path(origin: Origin) -> str | None:
    """Return the path of the uncompressed file, absolute and normal."""
    return origin.path and posixpath.normpath(posixpath.join("/", without_gz(origin.path)))


def _packed(origin: Origin) -> bool:
    known = FORMATS.get(origin.format)
    compressed = known is not None and known.compresses and (origin.path or "").endswith(PACKED)
    return compressed or origin.damaged


def _base(files: Sequence[tuple[Origin, str]]) -> str:
    """Return the deepest directory that has all runs of a source's files."""
    runs = []
    for origin, path in files:
        run = FORMATS[origin.format].files.group(path) if origin.format in FORMATS else ""
        runs.append(run if path.startswith(f"{run}/") else posixpath.dirname(path))
    return posixpath.commonpath(runs) if runs else "/"


def _suffix(origin: Origin) -> str:
    return FORMATS[origin.format].suffix if origin.format in FORMATS else ""
