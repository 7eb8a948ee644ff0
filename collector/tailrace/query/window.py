"""A selection of rows within a range of time, and the gaps that may concern these rows.

Gap rows have a source, a session and mostly a stream, but no time. So the sessions that were open within the
range decide which gaps concern it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tailrace.query.completeness import Scope
from tailrace.query.filters import RowCondition, Selection, Then, all_of

_SESSIONS_THEN = "(source, session) IN (SELECT (source, session) FROM part.session_times WHERE {})"


class Window(NamedTuple):
    """A selection from `since`, inclusive, to `until`, exclusive: Unix nanoseconds, or None for no bound.

    A row without a time is in no bounded range."""

    selection: Selection = Selection()
    since: int | None = None
    until: int | None = None

    @property
    def rows(self) -> RowCondition:
        """Return the condition on rows of a view that has a `time`."""
        return all_of([self.selection.condition, *self._times()])

    @property
    def of_sessions(self) -> RowCondition:
        """Return the condition on rows of a view without a `time`, by the times of their sessions."""
        return all_of([self.selection.condition, *self._sessions()])

    @property
    def scope(self) -> Scope:
        """Return the scope of the rows: the gaps of all sessions that may have been open then."""
        sessions = list(self._sessions())
        gaps = all_of([self.selection.gaps, *sessions])
        return Scope(
            self.selection, gaps, self.rows, Then(self.since, self.until) if sessions else None
        )

    def _times(self) -> Iterator[RowCondition]:
        if self.since is not None:
            yield RowCondition("time >= ?", (self.since,))
        if self.until is not None:
            yield RowCondition("time < ?", (self.until,))

    def _sessions(self) -> Iterator[RowCondition]:
        condition = Then(self.since, self.until).by_times
        if condition.values:
            yield RowCondition(_SESSIONS_THEN.format(condition.sql), condition.values)
