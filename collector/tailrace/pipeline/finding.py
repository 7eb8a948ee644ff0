"""Which files below some paths are traces, and of which format: for `tailrace import`."""

from __future__ import annotations

import gzip
import os
import posixpath
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from tailrace.decoding.formats import FORMATS
from tailrace.errors import ConfigError

HEAD_BYTES = 4096


def find(paths: Iterable[Path], format_: str | None) -> tuple[dict[str, list[str]], list[str]]:
    """Absolute paths of the streams' files by format, in order, and the files that are none.

    With a format given, a file named by itself is of that format whatever it is called, and below
    a directory those that may be its streams are. Without, the first format that recognises a
    file's name and first bytes is its own. Documents of streams are neither. Raise ConfigError for a path that is not there or cannot be read."""
    found: dict[str, list[str]] = {}
    others: list[str] = []
    for path in paths:
        if not path.exists():
            raise ConfigError([f"{path}: there is no such file or directory"])
        for file in _files(path.absolute()):
            if format_ is None:
                name = _recognised(file)
            else:
                certain = not path.is_dir() or FORMATS[format_].files.stream(file)
                name = format_ if certain else None
            if name is None:
                others.append(file)
            else:
                found.setdefault(name, []).append(file)
    found = {name: list(dict.fromkeys(files)) for name, files in found.items()}
    documents = {document for name in found for document in _documents(name, found[name])}
    return found, [file for file in others if file not in documents]


def _documents(format_: str, files: Iterable[str]) -> Iterator[str]:
    for file in files:
        directory = posixpath.dirname(file)
        for document in FORMATS[format_].files.documents(file):
            yield posixpath.normpath(posixpath.join(directory, document))


def _files(path: Path) -> Iterator[str]:
    """The file itself, or all below a directory; links to directories are not followed."""
    if not path.is_dir():
        yield str(path)
        return
    for directory, directories, names in os.walk(path):
        directories.sort()
        for name in sorted(names):
            file = Path(directory, name)
            if file.is_file():
                yield str(file)


def _recognised(file: str) -> str | None:
    head = _head(file)
    for format_ in FORMATS.values():
        if format_.files.stream(file) and format_.files.recognises(file, head):
            return format_.name
    return None


def _head(file: str) -> bytes:
    """The first bytes of its content."""
    try:
        with Path(file).open("rb") as raw:
            head = raw.read(HEAD_BYTES)
            if not head.startswith(b"\x1f\x8b"):
                return head
            raw.seek(0)
            with gzip.GzipFile(fileobj=raw) as content:
                return content.read1(HEAD_BYTES)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return b""
    except OSError as error:
        raise ConfigError([f"{file}: {error.strerror}"]) from error
