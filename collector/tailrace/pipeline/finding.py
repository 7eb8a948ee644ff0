"""Which files below some paths are traces, and of which format: for `tailrace import`."""

from __future__ import annotations

import gzip
import os
import posixpath
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from tailrace.decoding.decoder import Format
from tailrace.decoding.formats import FORMATS
from tailrace.errors import ConfigError

HEAD_BYTES = 4096


def find(paths: Iterable[Path], format_: str | None) -> tuple[dict[str, list[str]], list[str]]:
    """Absolute paths of the streams' files by format, in order, and the files that are none.

    A file is of the given format, or of the first that recognises its name and first bytes.
    Documents of streams are neither. Raise ConfigError for a path that is not there or cannot be read."""
    formats = [FORMATS[format_]] if format_ else list(FORMATS.values())
    found: dict[str, list[str]] = {}
    others: list[str] = []
    for path in paths:
        if not path.exists():
            raise ConfigError([f"{path}: there is no such file or directory"])
        for file in _files(path.absolute()):
            name = _format_of(file, formats, certain=format_ is not None and not path.is_dir())
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


def _format_of(file: str, formats: Iterable[Format], *, certain: bool) -> str | None:
    """The format of a file; one that was named by itself is what it is said to be."""
    if certain:
        return next(iter(formats)).name
    head = _head(file)
    for format_ in formats:
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
