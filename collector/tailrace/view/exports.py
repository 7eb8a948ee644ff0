"""Exports over HTTP: what `tailrace export` writes, for a browser to save or to hand on to Perfetto.

An export is written whole into a temporary directory, from one snapshot, and then sent. A format that makes
several files is sent as a ZIP archive.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from tailrace.errors import UnknownError
from tailrace.export import WRITERS
from tailrace.export.output import Output, RowCount
from tailrace.export.selected import Selected, export as write_export
from tailrace.query.limits import Limits, make_room
from tailrace.query.patience import Patience
from tailrace.view.desk import DeskTurn
from tailrace.view.questions import OfExport

COMPLETENESS = "x-tailrace-completeness"
"""The header that says, as JSON, what an export lacks and what its format has no place for."""

LIMITS = Limits(memory=256 * 2**20, spill=2**40, threads=2)
"""The limits of the statements of an export; they take as long as they need."""

SECONDS = 900.0
"""How long it may take to write an export."""

PIECE = 2**18

SUFFIXES = {"perfetto": "pftrace", "chrome": "json", "otlp": "jsonl"}
"""The endings of files of formats whose name is another."""

ARCHIVE = "application/zip"
BINARY = "application/octet-stream"


class Written(NamedTuple):
    """A file to send, in a directory of its own that goes when it is sent, and what it lacks."""

    directory: Path
    file: Path
    words: dict[str, object]


def write(turn: DeskTurn, asked: OfExport) -> Written:
    """Write an export. Raise the errors of `export`."""
    directory = Path(make_room("view"))
    try:
        return _write(turn, asked, directory)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _write(turn: DeskTurn, asked: OfExport, directory: Path) -> Written:
    def select() -> Selected:
        snapshot = turn.own_snapshot(LIMITS)
        patience = Patience(snapshot.engine, None)
        return Selected(snapshot.engine, asked.filters, patience, snapshot.live)

    if asked.format not in WRITERS:
        raise UnknownError(f"there is no format {asked.format!r}; known: {', '.join(WRITERS)}")
    output = Output(str(directory / f"trace.{SUFFIXES.get(asked.format, asked.format)}"))
    with output:
        exported = write_export(WRITERS[asked.format].load(), select, output, RowCount(None))
    names = output.names
    if len(names) == 1:
        return Written(directory, names[0], exported.words)
    archive = directory / f"trace.{asked.format}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as files:
        for name in names:
            files.write(name, name.name)
    return Written(directory, archive, exported.words)


class Download(StreamingResponse):
    """Sends a file, and removes its directory at the end, also if the client leaves."""

    def __init__(self, written: Written) -> None:
        name = written.file.name
        self._written = written
        super().__init__(
            _pieces(written.file),
            media_type=ARCHIVE if name.endswith(".zip") else BINARY,
            headers={
                "cache-control": "no-store",
                "content-disposition": f'attachment; filename="{name}"',
                "content-length": str(written.file.stat().st_size),
                COMPLETENESS: json.dumps(written.words),
            },
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            shutil.rmtree(self._written.directory, ignore_errors=True)


async def _pieces(file: Path) -> AsyncIterator[bytes]:
    with file.open("rb") as opened:
        while piece := await asyncio.to_thread(opened.read, PIECE):
            yield piece
