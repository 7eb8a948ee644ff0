"""Keep notes of users about ranges of time: one small file for each note, beside the table.

Each note is written once, under a unique name, and never changed, so two writers never overwrite each other's notes."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from tailrace import owned
from tailrace.errors import FullError, StoreError
from tailrace.filesystem import is_local
from tailrace.store.refusal import line, refusing

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem  # type: ignore[import-untyped]  # it has no types

DIRECTORY = "notes"

NOTES_MAX = 1000
"""Maximum number of notes of users in a store. To list them, one file is read for each note."""

TEXT_MAX = 10_000
"""Maximum number of characters in the text of a user's note."""

_SUFFIX = ".json"
_ID = re.compile(r"[0-9a-f]{16}")
_FILE = re.compile(rf"{_ID.pattern}\{_SUFFIX}")

Time = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A user's text about a range or a point of time (Unix ns), with the time of the note's creation. The note may be
    about one source, session or stream; an empty value stands for all of them."""

    id: str = msgspec.field(default_factory=lambda: secrets.token_hex(8))
    made: Time
    from_: Time = msgspec.field(name="from")
    to: Time
    text: str
    source: str = ""
    session: str = ""
    stream: str = ""


class ListedNotes(NamedTuple):
    """Valid notes sorted by time, and the names of files that contain no valid note."""

    notes: list[Note]
    unreadable: list[str]


class NoteStore:
    """The notes that users have written about a store, which is a directory or URL. Methods raise StoreError if the
    store refuses an operation, and FullError if there is no room."""

    def __init__(self, store: str, options: dict[str, str]) -> None:
        self._files: _Directory | _Bucket = (
            _Directory(Path(store.removeprefix("file://")) / DIRECTORY)
            if is_local(store.removeprefix("file://"))
            else _Bucket(f"{store.rstrip('/')}/{DIRECTORY}", options)
        )

    @property
    def refused(self) -> str | None:
        """Return the reason why notes cannot be written to the store, or None. A later write may fail nevertheless."""
        return self._files.refused

    def list(self) -> ListedNotes:
        """Return all users' notes, sorted by start time, and the names of files that contain no valid note."""
        found: list[Note] = []
        unreadable: list[str] = []
        for name in sorted(filter(_FILE.fullmatch, self._files.names()))[:NOTES_MAX]:
            try:
                data = self._files.read(name)
                if data is None:
                    continue  # Another process has removed the note since the notes were listed.
                note = msgspec.json.decode(data, type=Note)
            except (StoreError, msgspec.DecodeError):
                unreadable.append(name)
                continue
            if f"{note.id}{_SUFFIX}" == name:
                found.append(note)
            else:
                # Count the file as invalid: `remove` would not find it, because its name is not the note's id.
                unreadable.append(name)
        return ListedNotes(
            sorted(found, key=lambda note: (note.from_, note.to, note.id)), unreadable
        )

    def add(self, note: Note) -> None:
        if len(list(filter(_FILE.fullmatch, self._files.names()))) >= NOTES_MAX:
            raise FullError(f"{self._files}: has {NOTES_MAX} notes; remove some")
        self._files.write(f"{note.id}{_SUFFIX}", msgspec.json.encode(note))

    def remove(self, id_: str) -> bool:
        """Remove the user's note with the id `id_`. Return whether the note existed."""
        return _ID.fullmatch(id_) is not None and self._files.remove(f"{id_}{_SUFFIX}")


class _Directory:
    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def refused(self) -> str | None:
        lowest = self._path if self._path.is_dir() else self._path.parent
        if os.access(lowest, os.W_OK | os.X_OK, effective_ids=True):
            return None
        return f"{lowest}: this user may not write there"

    def names(self) -> Iterable[str]:
        with refusing(self, "list the notes"), suppress(FileNotFoundError):
            return [each.name for each in self._path.iterdir()]
        return []

    def read(self, name: str) -> bytes | None:
        with refusing(self._path / name, "read the note"), suppress(FileNotFoundError):
            return (self._path / name).read_bytes()
        return None

    def write(self, name: str, data: bytes) -> None:
        with refusing(self, "keep a note"):
            self._path.mkdir(exist_ok=True)
            owned.refuse_foreign(self._path)
            owned.write_file(self._path / name, data, durable=True)

    def remove(self, name: str) -> bool:
        with refusing(self._path / name, "remove the note"), suppress(FileNotFoundError):
            (self._path / name).unlink()
            return True
        return False

    def __str__(self) -> str:
        return str(self._path)


class _Bucket:
    """The users' notes in a store at a URL, as objects of an object store."""

    def __init__(self, url: str, options: dict[str, str]) -> None:
        self._url = url
        self._options = options

    refused = None
    """Always None: only an attempt to write can detect a missing permission."""

    def names(self) -> Iterable[str]:
        from pyarrow.fs import FileSelector  # noqa: PLC0415 - 100 ms, and only needed at a URL

        try:
            found = self._files().get_file_info(FileSelector("", allow_not_found=True))
        except OSError as error:
            raise StoreError(f"{self._url}: cannot list the notes: {line(error)}") from error
        return [each.base_name for each in found]

    def read(self, name: str) -> bytes | None:
        try:
            with self._files().open_input_file(name) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"{self._url}/{name}: cannot read the note: {line(error)}") from error

    def write(self, name: str, data: bytes) -> None:
        from deltalake._internal import DeltaFileSystemHandler  # noqa: PLC0415 - see `names`

        # Bypass pyarrow's file object, which passes on a buffer that the Delta library (1.6.6) refuses to write.
        try:
            file = DeltaFileSystemHandler(self._url, self._options or None).open_output_stream(name)
            file.write(data)
            file.close()  # type: ignore[attr-defined] # the library's stub lacks it
        except OSError as error:
            raise StoreError(f"{self._url}/{name}: cannot keep the note: {line(error)}") from error

    def remove(self, name: str) -> bool:
        if self.read(name) is None:
            return False
        try:
            self._files().delete_file(name)
        except OSError as error:
            raise StoreError(
                f"{self._url}/{name}: cannot remove the note: {line(error)}"
            ) from error
        return True

    def _files(self) -> FileSystem:
        from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415 - see `names`
        from pyarrow.fs import PyFileSystem  # noqa: PLC0415

        return PyFileSystem(DeltaStorageHandler(self._url, self._options or None))

    def __str__(self) -> str:
        return self._url
