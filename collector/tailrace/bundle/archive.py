"""The archive: every part within its time and size, and a README that says what is in it and what is not."""

from __future__ import annotations

import io
import os
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tailrace.bundle.parts import PARTS, Part, Subject
from tailrace.bundle.redaction import Redaction
from tailrace.terminal import printable

PART_SECONDS = 20.0
PART_BYTES = 4 * 2**20

README = """\
A support bundle of Tailrace. It has facts about one collector and its host, so that somebody can help.

It holds no events, no names or attributes of events, and none of the bytes in the quarantine. Storage
options, tokens, user and password of URLs and the values of TAILRACE_* variables are replaced by
REDACTED. It does name this host, its addresses, users, directories and packages, the sources, and in
the log's lines peers and files. Look through it before you pass it on: all of it is text.

"""


class Made(NamedTuple):
    """A part, or why there is none."""

    part: Part
    text: str | None
    failure: str


def collect(subject: Subject, redaction: Redaction) -> Iterator[Made]:
    """All parts, one after another, each as soon as it is there."""
    for part in PARTS:
        made = _within(PART_SECONDS, part, subject)
        text = None if made.text is None else _bounded(redaction.clean(made.text))
        yield Made(part, text, redaction.clean(printable(made.failure)))


def write(path: Path, name: str, made: list[Made], now: int) -> None:
    """A .tar.gz, with all in a directory `name`, that nobody but its owner can read. Raise OSError,
    also where there is something already."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        _add(archive, f"{name}/README.txt", readme(made), now)
        for each in made:
            if each.text is not None:
                _add(archive, f"{name}/{each.part.name}", each.text, now)


def readme(made: list[Made]) -> str:
    return README + "".join(f"{contents(each)}\n" for each in made)


def contents(made: Made) -> str:
    """A part's line."""
    size = "  missing  " if made.text is None else f"{len(made.text.encode()):>9,} B"
    line = f"{size}  {made.part.name:<19} {made.part.meaning}"
    return f"{line} Not there: {made.failure}" if made.text is None else line


def facts(made: Made) -> dict[str, object]:
    """Return the same for programs."""
    size = None if made.text is None else len(made.text.encode())
    failure = made.failure if made.text is None else None
    return {
        "name": made.part.name,
        "meaning": made.part.meaning,
        "bytes": size,
        "failure": failure,
    }


def _within(seconds: float, part: Part, subject: Subject) -> Made:
    """A part that takes longer is left to itself: a disk that does not answer would hold up all."""
    done: list[Made] = []

    def make() -> None:
        try:
            done.append(Made(part, part.make(subject), ""))
        except Exception as error:  # noqa: BLE001 - whatever is wrong there is what is to be told
            done.append(Made(part, None, f"{type(error).__name__}: {error}"))

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    thread.join(seconds)
    return done[0] if done else Made(part, None, f"took longer than {seconds:g} s")


def _bounded(text: str) -> str:
    """Valid UTF-8, and no more of it than there is room for."""
    data = text.encode(errors="replace")
    if len(data) <= PART_BYTES:
        return data.decode()
    return data[:PART_BYTES].decode(errors="ignore") + "\n[cut: too long for a bundle]\n"


def _add(archive: tarfile.TarFile, name: str, text: str, now: int) -> None:
    data = text.encode()
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = len(data), now, 0o644
    archive.addfile(info, io.BytesIO(data))
