"""The examples on the pages of `docs/formats`: bytes of a trace, and the rows that come of them.

    The file `/runs/trace`:

    ```lines
    M 100 0 1
    ```

    and beside it `class_list`: …

    ```text
    offset  kind  …
    ```

A block of `lines` is a file as it stands, one of `hex` its bytes, with a remark behind each `#`. The
paragraph before the block ends in the file's name and a colon. The first file of an example is the
trace, those that follow are the documents beside it, and a block of `text` is what becomes of them:
all rows of the table but those that the collector itself writes about the session, such as that it has
opened and closed the file.

`python -m tests.docs.examples docs/formats/heph.md` prints the rows as they are today.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tailrace.decoding.formats import FORMATS
from tailrace.rows.schema import is_own
from tests.ingest.log import Log, run

BLOCK = re.compile(
    r"^([^\n]*)\n\n```(hex|lines)\n(.*?)^```$|^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
FILE = re.compile(r"`([^`]+)`:$")

LEFT_OUT = frozenset({"day", "source", "format", "session", "time", "wall"})
"""Columns that do not depend on the trace's bytes, or that repeat other columns."""


class Example(NamedTuple):
    """The path and the bytes of a trace, the documents beside it, and the rows that the page shows."""

    path: str
    data: bytes
    documents: list[tuple[str, bytes]]
    shown: str


def examples(page: str) -> Iterator[Example]:
    files: list[tuple[str, bytes]] = []
    for paragraph, kind, content, shown in BLOCK.findall(page):
        if kind:
            name = FILE.search(paragraph)
            assert name, f"no file's name before a block: {paragraph}"
            data = _from_hex(content) if kind == "hex" else content.encode()
            files.append((name[1], data))
        elif files:
            (path, data), *documents = files
            yield Example(path, data, documents, shown)
            files = []


def rows_of(format_: str, example: Example) -> str:
    """Process an example with the ingest. Return the rows of its records and its gaps as a table."""
    log = Log()
    group = FORMATS[format_].files.group(example.path)
    session = log.open_file(format_, example.path, group=group)
    for name, data in example.documents:
        log.document(session, name, data)
    log.data(session, example.data)
    log.close(session)
    _, rows = run(log.entries)
    return _table([r for r in rows if not is_own(r["kind"], r["name"], r["start"], r["time"])])


def _from_hex(content: str) -> bytes:
    return b"".join(bytes.fromhex(line.partition("#")[0]) for line in content.splitlines())


def _table(rows: list[dict[str, object]]) -> str:
    """Return a table of all columns that have a value, offsets first."""
    named = dict.fromkeys(("offset", "end_offset", *rows[0]))
    columns = [name for name in named if name not in LEFT_OUT]
    columns = [name for name in columns if any(row[name] not in {None, ""} for row in rows)]
    cells = [columns, *([_cell(row[name]) for name in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        for line in cells
    )
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


def main() -> None:
    page = Path(sys.argv[1])
    for example in examples(page.read_text()):
        sys.stdout.write(rows_of(page.stem, example))


if __name__ == "__main__":
    main()
