"""Export a selection: write it whole, from one snapshot."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tailrace.errors import BrokenOffError
from tailrace.export.formats import ExportWriter
from tailrace.export.output import Output
from tailrace.export.progress import RowCount
from tailrace.export.selected import Left, Selected
from tailrace.query.engine import ATTEMPTS


class Exported(NamedTuple):
    """The rows that were selected, and what of them was left out."""

    selected: Selected
    left: Left

    @property
    def text(self) -> str:
        """Return what the export lacks, in words."""
        whole = self.selected.whole
        parts = [f"{'complete' if whole.complete else 'not complete'}: {whole.text}"]
        if self.left:
            left = ", ".join(f"{count} x {what}" for what, count in sorted(self.left.items()))
            parts.append(f"left out: {left}")
        return "; ".join(parts)

    @property
    def words(self) -> dict[str, object]:
        """Return the same as an object of JSON."""
        return {**self.selected.whole.words, "left_out": dict(self.left)}


def export(
    writer: ExportWriter, select: Callable[[], Selected], output: Output, progress: RowCount
) -> Exported:
    """Write what `select` takes from the newest snapshot; again if files are deleted meanwhile.

    Raise QueryError, StoreError and ExportError."""
    write = writer.load()
    for attempt in range(ATTEMPTS):
        selected = select()
        progress.begin(selected.events)
        try:
            left = write(selected, output, progress)
            selected.same()
        except BrokenOffError:
            if attempt == ATTEMPTS - 1:
                raise
            output.restart()
        else:
            return Exported(selected, left)
        finally:
            progress.end()
            selected.engine.close()
    raise AssertionError("unreachable")
