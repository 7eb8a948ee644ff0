"""Which files below some paths are traces, and of which format: for `tailrace import`."""

from __future__ import annotations

import gzip
import os
import posixpath
import stat
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NoReturn

from tailrace.decoding.formats import FORMATS
from tailrace.errors import ConfigError

HEAD_BYTES = 4096


def find(paths: Iterable[Path], format_: str | None) -> tuple[dict[str, list[str]], list[str]]:
    """Absolute paths of the streams' files by format, in order, and the files that are none.

    With a format given, a file named by itself is of that format whatever it is called, and below
    a directory those that may be its streams are. Without, the first format that recognises a
    file's name and first bytes is its own. Documents of streams are neither.

    Raise ConfigError for what is not there, is no file, or cannot be read: what was asked for and
    passed over would be missing without a word."""
    found: dict[str, list[str]] = {}
    others: list[str] = []
    for path in paths:
        searched = _is_directory(path)
        for file in _files(path.absolute()) if searched else [str(path.absolute())]:
            if format_ is None:
                name = _recognised(file)
            else:
                certain = not searched or FORMATS[format_].files.stream(file)
                if certain:
                    _head(file)
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


def _is_directory(path: Path) -> bool:
    """Whether this is a directory; what is no file either would have no end, or block."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise ConfigError([f"{path}: there is no such file or directory"]) from None
    except OSError as error:
        raise _refusal(str(path), error) from error
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise ConfigError([f"{path}: is neither a file nor a directory"])
    return stat.S_ISDIR(mode)


def _files(directory: Path) -> Iterator[str]:
    """All files below a directory; links to directories are not followed."""
    for place, directories, names in os.walk(directory, onerror=_raise):
        directories.sort()
        for name in sorted(names):
            file = Path(place, name)
            if file.is_file():
                yield str(file)


def _raise(error: OSError) -> NoReturn:
    raise _refusal(str(error.filename), error) from error


def _refusal(path: str, error: OSError) -> ConfigError:
    return ConfigError([f"{path}: {error.strerror}"])


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
        raise _refusal(file, error) from error
