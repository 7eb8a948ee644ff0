"""Export a selection: write it whole, from one snapshot."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from tailrace.errors import BrokenOffError
from tailrace.export.progress import RowCount
from tailrace.export.selected import Left, Selected
from tailrace.query.engine import ATTEMPTS


class Restartable(Protocol):
    """A place to which an export goes: files or a directory."""

    def restart(self) -> None:
        """Remove what was written, so that it can be written anew."""
        ...


Place = TypeVar("Place", bound=Restartable)


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
    write: Callable[[Selected, Place, RowCount], Left],
    select: Callable[[], Selected],
    output: Place,
    progress: RowCount,
) -> Exported:
    """Write what `select` takes from the newest snapshot; again if files are deleted meanwhile.

    Raise QueryError, StoreError and ExportError."""
    for attempt in range(ATTEMPTS):
        selected = select()
        progress.begin(selected.events)
        try:
            left = write(selected, output, progress)
            selected.same()
            if unreadable := len(selected.notes.unreadable):
                left["note that cannot be read"] += unreadable
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
