"""Find trace files, and detect the format of each, for `tailrace import`."""

from __future__ import annotations

import gzip
import os
import posixpath
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec

from tailrace.decoding.contract import Format, without_gz
from tailrace.decoding.foreign import FOREIGN, foreign, other_format
from tailrace.decoding.formats import FORMATS
from tailrace.errors import ConfigError
from tailrace.filesystem import spelled
from tailrace.sources.tail.content import beginning
from tailrace.sources.tail.inflate import MAGIC, STATED_MAX, read_statement
from tailrace.sources.tail.location import OPEN, opened

Traces = dict[str, list[str]]
"""The absolute paths of the trace files, by format, in the order in which they were found."""


class Why(StrEnum):
    """The reason why an import leaves out a file."""

    IMPORTED = "imported"
    """The table already has the content of the file."""
    COPY = "copy"
    """Another file has the same content as this file, or begins with the whole content of this file."""
    OUTSIDE = "outside"
    """The file is a symbolic link that leads out of the directory that the user gave."""
    EMPTY = "empty"
    """The file has no content, or it is a compressed file that was cut off before its content."""
    GONE = "gone"
    """The file disappeared before it could be read."""
    CHANGED = "changed"
    """The file was emptied or replaced before it could be read. Now it has content that was not read."""
    ABSENT = "absent"
    """The file does not exist, although a link leads to it or a metadata file describes it."""
    UNREADABLE = "unreadable"
    """The operating system refuses to read the file."""
    SPECIAL = "special"
    """The path is a pipe, a socket or a device."""
    OTHER_FORMAT = "other_format"
    """The file's content is of another format than the one that the user gave."""
    UNRECOGNISED = "unrecognised"
    """No format recognises the content of the file."""
    FOREIGN = "foreign"
    """The file has a known type that no decoder reads, such as an archive."""


CUT_OFF = "compressed data that ends before the first byte of content"


class LeftOut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that an import leaves out.

    `of` is the path of another file that has this file's content, and that this import or an earlier one reads; "" if there
    is none. If the file has a known type that no decoder reads, or was cut off before its content, `content` describes this in
    words; if the content is of another format, `content` names the format."""

    path: str
    why: Why
    of: str = ""
    content: str = ""
    trace: bool = True
    """Whether the file was expected to be a trace, because the user gave its path or its name is a trace's name."""
    sessions: tuple[str, ...] = ()
    """Ids of the sessions in the table that have the content of the file."""
    format: str = ""
    """The format in which an earlier import has stored the content of the file; "" if the present import would use the
    same format."""


class Discovered(NamedTuple):
    traces: Traces
    left_out: list[LeftOut]
    within: dict[str, str]
    """For each file that was found in a directory, by its path: the directory that the user gave."""


def find(paths: Iterable[Path], format_: str | None, *, unreadable: bool = False) -> Discovered:
    """Find the trace files in `paths`. Also return the files that are left out.

    - Read a file in `paths` in the format `format_`, unless its first bytes show a type that no decoder reads.
    - In a directory, choose only files whose name or content shows the format `format_`, and whose content shows no
      other format.
    - If `format_` is None, read each file in the first format that recognises the file's first bytes.
    - Omit metadata files of streams, unless `paths` contains them.

    Raise ConfigError if a path does not exist or is not a file, or if a file or directory cannot be read. If
    `unreadable` is true, do not raise ConfigError for unreadable files and directories, but leave them out."""
    traces: Traces = {}
    named: dict[str, bool] = {}
    """For each file that is not a trace, by its path: whether the user gave this path."""
    outside: list[LeftOut] = []
    within: dict[str, str] = {}
    given: set[str] = set()
    formats = list(FORMATS.values()) if format_ is None else [FORMATS[format_]]

    def fails(path: str, error: ConfigError) -> None:
        if not unreadable:
            raise error
        outside.append(LeftOut(path=spelled(path), why=Why.UNREADABLE))

    for file, place, why in _entries(paths, fails):
        if why:
            visible = any(each.files.stream(file) for each in formats)
            trace = visible if why is Why.OUTSIDE else _has_trace_name(file, formats)
            outside.append(LeftOut(path=spelled(file), why=why, trace=trace))
            continue
        if place is None:
            given.add(file)
        else:
            within.setdefault(file, place)
        try:
            name = _format(file, format_, searched=place is not None)
        except ConfigError as error:
            fails(file, error)
            continue
        if name is None:
            named[file] = named.get(file, False) or place is None
        else:
            traces.setdefault(name, []).append(file)
    documents = {
        posixpath.normpath(posixpath.join(posixpath.dirname(file), document))
        for name, files in traces.items()
        for file in files
        for document in FORMATS[name].files.documents(file)
    } - given
    traces = {
        name: [file for file in dict.fromkeys(files) if file not in documents]
        for name, files in traces.items()
    }
    endings = {_ending(file) for files in traces.values() for file in files} - {""}
    left_out = [
        _none(file, formats, named=itself, endings=endings)
        for file, itself in named.items()
        if itself or (file not in documents and file not in given)
    ]
    # A metadata file may describe the only trace to which it belongs.
    described = {each.files.described(file) for file in named for each in formats} - {""}
    absent = [
        LeftOut(path=spelled(stream), why=Why.ABSENT)
        for stream in sorted(described)
        if not os.path.lexists(stream)
    ]
    empty = dict.fromkeys(f for files in traces.values() for f in files if is_empty(f))
    left_out += [LeftOut(path=spelled(file), why=Why.EMPTY) for file in empty]
    kept = {name: [f for f in files if f not in empty] for name, files in traces.items()}
    return Discovered(
        {name: files for name, files in kept.items() if files},
        outside + absent + left_out,
        {file: place for file, place in within.items() if file not in given},
    )


def _entries(
    paths: Iterable[Path], fails: Callable[[str, ConfigError], None]
) -> Iterator[tuple[str, str | None, Why | None]]:
    """Yield three values for each file in `paths` and in the directories in `paths`: the file's path; the directory in
    which it was found, or None if `paths` contains the file itself; and why it cannot be imported, or None if it can.
    Call `fails` for each file or directory that cannot be examined. Raise ConfigError if one of `paths` does not exist
    or is not a file."""
    for path in paths:
        place = os.path.abspath(path)  # noqa: PTH100 - without "..": a file has one path
        if not _is_directory(path):
            yield place, None, None
            continue
        real = os.path.realpath(place)
        for file in _files(Path(place), fails):
            try:
                why = _hindrance(file, real)
            except ConfigError as error:
                fails(file, error)
                continue
            # Skip a link to a directory: the search finds the files in its target anyway.
            if why or not Path(file).is_dir():
                yield file, place, why


def is_empty(file: str) -> bool:
    """Return whether a file exists and has no content, after decompression if it is compressed."""
    try:
        if not Path(file).stat().st_size:
            return True
        with os.fdopen(os.open(file, OPEN), "rb") as raw:
            begin = raw.read(STATED_MAX)
            # The first gzip header may state that bytes were lost.
            if begin[:2] != MAGIC or read_statement(begin, last=True):
                return False
            raw.seek(0)
            with gzip.GzipFile(fileobj=raw) as content:
                return not content.read1(1)
    except (OSError, EOFError, zlib.error):
        return False


def shows_nothing(file: str) -> bool:
    """Return whether a file exists, but no content can be read from it now, as from incomplete gzip files."""
    try:
        return not _head(file)
    except ConfigError:
        return False


def _format(file: str, wanted: str | None, *, searched: bool) -> str | None:
    """Return the format in which an import reads a file, or None if the file is not a trace. The user gave the format
    `wanted`, or none. Raise ConfigError if the file cannot be read."""
    head = _head(file)
    if foreign(file, head, () if wanted is None else [FORMATS[wanted]]):
        return None
    if wanted is None:
        return next((f.name for f in FORMATS.values() if f.files.recognises(file, head)), None)
    files = FORMATS[wanted].files
    if searched and (not files.stream(file) or other_format(file, head, FORMATS[wanted])):
        return wanted if head and files.recognises(file, head) else None
    return wanted


def _none(file: str, formats: Sequence[Format], *, named: bool, endings: set[str]) -> LeftOut:
    """Return the entry for a file that is left out because it is not a trace.

    The entry's `trace` is true if the user may have expected a trace: the user gave the path, the file has a typical
    name of a trace, or the file is empty and has the same suffix as a trace that was found."""
    empty = is_empty(file)
    trace = named or _has_trace_name(file, formats) or (empty and _ending(file) in endings)
    if what := foreign(file, _head(file), formats if len(formats) == 1 else ()):
        return LeftOut(path=spelled(file), why=Why.FOREIGN, content=FOREIGN[what], trace=trace)
    if not empty and len(formats) == 1 and (other := other_format(file, _head(file), formats[0])):
        return LeftOut(path=spelled(file), why=Why.OTHER_FORMAT, content=other, trace=False)
    return LeftOut(path=spelled(file), why=Why.EMPTY if empty else Why.UNRECOGNISED, trace=trace)


def _ending(file: str) -> str:
    return Path(without_gz(file)).suffix


def _has_trace_name(file: str, formats: Sequence[Format]) -> bool:
    """Return whether the name of a file is typical of traces of one of the formats. For a compressed
    file, also judge the name without the suffix of the compression."""
    return any(
        (each.files.has_own_names and each.files.stream(name)) or _ending(name) == each.suffix
        for each in formats
        for name in (file, os.path.splitext(file)[0])  # noqa: PTH122 - any text is a path
    )


def _is_directory(path: Path) -> bool:
    """Return whether a path is a directory. Raise ConfigError if the path is neither a directory nor a regular file,
    because a read from such a path may block or never end."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise ConfigError([f"{path}: does not exist"]) from None
    except OSError as error:
        raise _refusal(str(path), error) from error
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise ConfigError([f"{path}: is neither a file nor a directory"])
    return stat.S_ISDIR(mode)


def _files(directory: Path, fails: Callable[[str, ConfigError], None]) -> Iterator[str]:
    """Yield the paths of all files below a directory, but not of directories. Yield links to directories, too, but do
    not follow them. Call `fails` for each directory that cannot be read."""

    def refused(error: OSError) -> None:
        fails(str(error.filename), _refusal(str(error.filename), error))

    for place, directories, names in os.walk(directory, onerror=refused):
        directories.sort()
        links = [name for name in directories if Path(place, name).is_symlink()]
        for name in sorted(names + links):
            yield str(Path(place, name))


def _hindrance(file: str, real: str) -> Why | None:
    """Return the reason why an entry of a directory cannot be imported, or None if it can. `real` is the path of the
    directory with all links resolved. Raise ConfigError if the entry cannot be examined."""
    try:
        if not Path(file).exists():
            return Why.ABSENT
    except OSError as error:
        raise _refusal(file, error) from error
    if not (os.path.realpath(file) + "/").startswith(real.rstrip("/") + "/"):
        return Why.OUTSIDE
    return None if Path(file).is_file() or Path(file).is_dir() else Why.SPECIAL


def _refusal(path: str, error: OSError) -> ConfigError:
    return ConfigError([f"{path}: {error.strerror}"])


def _head(file: str) -> bytes:
    """Return the first bytes of a file's content, after decompression. Raise ConfigError if the file cannot be read."""
    try:
        with opened(file) as fd:
            return beginning(fd)
    except OSError as error:
        raise _refusal(file, error) from error
