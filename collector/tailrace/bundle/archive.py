"""Write the archive: every part within its limits of time and size, and a README about its content."""

from __future__ import annotations

import io
import os
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tailrace.bundle.parts import PARTS, BundlePart
from tailrace.bundle.redaction import Redaction, Subject
from tailrace.terminal import printable

PART_SECONDS = 20.0
PART_BYTES = 4 * 2**20

README = """\
A support bundle of Tailrace: facts about one collector and its host, for somebody who helps.

It contains no events, no names or attributes of events, and no bytes from the quarantine. Storage
options, tokens, user and password of URLs and the values of TAILRACE_* variables are replaced by
REDACTED. It does name this host, its addresses, users, directories and packages, the sources, and,
in lines of the log, peers and files. Review it before you pass it on: all of it is text.

"""


class Made(NamedTuple):
    """A part, or the reason why it is missing."""

    part: BundlePart
    text: str | None
    failure: str


def collect(subject: Subject, redaction: Redaction) -> Iterator[Made]:
    """Yield all parts, each as soon as it is made."""
    for part in PARTS:
        made = _within(PART_SECONDS, part, subject)
        text = None if made.text is None else _bounded(redaction.clean(made.text))
        yield Made(part, text, redaction.clean(printable(made.failure)))


def write(path: Path, name: str, made: list[Made], now: int) -> None:
    """Write a .tar.gz that only its owner can read, with everything in a directory `name`.

    Raise OSError, also if the path exists."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        _add(archive, f"{name}/README.txt", readme(made), now)
        for each in made:
            if each.text is not None:
                _add(archive, f"{name}/{each.part.name}", each.text, now)


def readme(made: list[Made]) -> str:
    return README + "".join(f"{contents(each)}\n" for each in made)


def contents(made: Made) -> str:
    """Return the line for one part."""
    size = "  missing  " if made.text is None else f"{len(made.text.encode()):>9,} B"
    line = f"{size}  {made.part.name:<19} {made.part.meaning}"
    return f"{line} Missing: {made.failure}" if made.text is None else line


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


def _within(seconds: float, part: BundlePart, subject: Subject) -> Made:
    """Make a part within a time limit. A part that takes longer is abandoned, because a disk that does
    not answer would block everything."""
    done: list[Made] = []

    def make() -> None:
        try:
            done.append(Made(part, part.make(subject), ""))
        except Exception as error:  # noqa: BLE001 - the bundle reports every error
            done.append(Made(part, None, f"{type(error).__name__}: {error}"))

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    thread.join(seconds)
    return done[0] if done else Made(part, None, f"took longer than {seconds:g} s")


def _bounded(text: str) -> str:
    """Return the text as valid UTF-8, cut to `PART_BYTES`."""
    data = text.encode(errors="replace")
    if len(data) <= PART_BYTES:
        return data.decode()
    return data[:PART_BYTES].decode(errors="ignore") + "\n[cut: too long for a bundle]\n"


def _add(archive: tarfile.TarFile, name: str, text: str, now: int) -> None:
    data = text.encode()
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = len(data), now, 0o644
    archive.addfile(info, io.BytesIO(data))
