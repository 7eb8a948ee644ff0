"""Write a store's events in the formats of other tools, with what is missing from them.

A format is a function `write(selected, output, progress)` in a module here, and a line in `WRITERS`. It gets
the rows from `Selected` or, to draw them in time, from a `DrawnRows` of it; it writes to the files of
`Output`; and it returns how many rows it left out, by what they are.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tailrace.export.output import Output, RowCount
    from tailrace.export.selected import Left, Selected

    Write = Callable[[Selected, Output, RowCount], Left]


class ExportWriter(NamedTuple):
    """`place` is MODULE:FUNCTION, `meaning` what it writes, and `pipes` whether one file holds all of it."""

    place: str
    meaning: str
    pipes: bool = True

    def load(self) -> Write:
        module, _, function = self.place.partition(":")
        write: Write = getattr(import_module(f"tailrace.export.{module}"), function)
        return write


WRITERS = {
    "perfetto": ExportWriter("perfetto:write", "Perfetto's protobuf, which ui.perfetto.dev opens"),
    "chrome": ExportWriter("chrome:write", "Chrome's JSON, which many viewers read"),
    "parquet": ExportWriter("tables:write_parquet", "Parquet, and the gaps beside it"),
    "arrow": ExportWriter("tables:write_arrow", "Arrow's IPC file, and the gaps beside it"),
    "csv": ExportWriter("tables:write_csv", "comma-separated values, and the gaps beside them"),
    "jsonl": ExportWriter("tables:write_jsonl", "JSON, one object a line, and the gaps beside it"),
    "otlp": ExportWriter(
        "otlp:write",
        "OpenTelemetry's JSON lines: spans, with logs and metrics beside them",
        pipes=False,
    ),
}
"""Every format of `tailrace export --to` that goes to files."""

ORIGINAL, OTF2 = "original", "otf2"
DIRECTORIES = {
    ORIGINAL: "the formats of the producers again, in a directory",
    OTF2: "an archive of OTF2, in a directory; needs tailrace[otf2]",
}
"""Every format that goes to a directory (`original`, `otf2_archive`), and what comes of it."""
