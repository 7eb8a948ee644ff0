"""Write the events of a store in the formats of other tools, with a description of the missing events.

Each format has a module with a function `write(selected, output, progress)`, which reads from `Selected` or, for a
timeline, `DrawnRows`, writes to `Output`, and returns the number of rows that it left out, by kind of row.
"""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tailrace.export.output import Output, RowCount
    from tailrace.export.selected import Left, Selected

    Write = Callable[[Selected, Output, RowCount], Left]


class ExportWriter(NamedTuple):
    """An export format that is written to files. `place` names the format's function as MODULE:FUNCTION, `meaning` a
    description for users. `pipes` states whether the export may go to a pipe, which takes only the main file."""

    place: str
    meaning: str
    pipes: bool = True

    def load(self) -> Write:
        write: Write = resolve_name(f"tailrace.export.{self.place}")
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
"""The writers of `tailrace export --to` for formats that are written to files."""

ORIGINAL, OTF2 = "original", "otf2"
DIRECTORIES = {
    ORIGINAL: "the formats of the producers again, in a directory",
    OTF2: "an archive of OTF2, in a directory; needs tailrace[otf2]",
}
"""The values of `tailrace export --to` for formats that are written to a directory, with descriptions for users."""
