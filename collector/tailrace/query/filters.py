"""Build SQL conditions on columns of views. Each value becomes a parameter, written as a question mark; column names
come from this program, never from a user's text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Self

from tailrace.model.gap import DAMAGED_SESSION


class RowCondition(NamedTuple):
    """An SQL condition. Each question mark in `sql` stands for one of `values`, in this order."""

    sql: str
    values: tuple[object, ...] = ()


_LABELLED = "(source, session) IN (SELECT source, session FROM labels WHERE key = ? AND value = ?)"


def quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def quoted(texts: Iterable[str]) -> str:
    """Return the SQL of a list of texts in parentheses."""
    return f"({', '.join(map(quote, texts))})"


def one_of(column: str, values: Sequence[str | int]) -> RowCondition:
    if not values:
        return RowCondition("false")
    marks = ", ".join("?" * len(values))
    return RowCondition(f"{column} IN ({marks})", tuple(values))


def begins_with(column: str, beginnings: Sequence[str]) -> RowCondition:
    """Return the condition that the text in a column begins with at least one of the given texts."""
    return any_of([RowCondition(f"starts_with({column}, ?)", (text,)) for text in beginnings])


def any_of(conditions: Sequence[RowCondition]) -> RowCondition:
    joined = _joined(" OR ", conditions, RowCondition("false"))
    # In parentheses, so that callers may write AND beside the condition.
    return joined._replace(sql=f"({joined.sql})")


def all_of(conditions: Sequence[RowCondition]) -> RowCondition:
    return _joined(" AND ", conditions, RowCondition("true"))


class RunLabel(NamedTuple):
    """A label that a user gave to a run. It selects the sessions of all runs with this label."""

    key: str
    value: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}"


class JobFilter(NamedTuple):
    """Selects sessions by rank, node and job. For each list that is given, a session must match one of its items. A job
    id also matches the steps of this job."""

    ranks: tuple[int, ...] | None = None
    nodes: tuple[str, ...] | None = None
    jobs: tuple[str, ...] | None = None

    @property
    def conditions(self) -> Iterator[RowCondition]:
        """SQL conditions on the view `part.places`: one for each of `ranks`, `nodes` and `jobs` that is not None."""
        if self.ranks is not None:
            yield one_of("rank", self.ranks)
        if self.nodes is not None:
            yield one_of("node", self.nodes)
        if self.jobs is not None:
            steps = "job = ?", "starts_with(job, ? || '.')"
            yield any_of([RowCondition(sql, (job,)) for job in self.jobs for sql in steps])


class Selection(NamedTuple):
    """Selects the rows that match, for each list that is given, one of its items. Items of `sessions` are beginnings of
    session ids. The run to which a row belongs must have all of the `labels`."""

    sources: tuple[str, ...] | None = None
    sessions: tuple[str, ...] | None = None
    streams: tuple[str, ...] | None = None
    labels: tuple[RunLabel, ...] | None = None
    job: JobFilter = JobFilter()

    @classmethod
    def of_options(
        cls,
        source: str | None,
        session: str | None = None,
        labels: tuple[RunLabel, ...] = (),
        job: JobFilter = JobFilter(),  # noqa: B008 - cannot be changed
    ) -> Self:
        """Return the selection for the options `--source`, `--session`, `--label`, `--rank`, `--node` and `--job`."""
        return cls(
            None if source is None else (source,),
            None if session is None else (session,),
            labels=labels or None,
            job=job,
        )

    @property
    def condition(self) -> RowCondition:
        """SQL condition for the selected rows. It is valid for views that have all columns which this selection
        restricts."""
        return all_of([*self._where(), *self._of_streams()])

    @property
    def gaps(self) -> RowCondition:
        """SQL condition for the gaps that may concern the selected rows, including gaps whose stream or session is
        unknown."""
        return all_of([*self._where(DAMAGED_SESSION), *self._of_streams("")])

    def _where(self, *more_sessions: str) -> Iterator[RowCondition]:
        more = [one_of("session", more_sessions)] if more_sessions else []
        if self.sources is not None:
            yield one_of("source", self.sources)
        if self.sessions is not None:
            yield any_of([begins_with("session", self.sessions), *more])
        for label in self.labels or ():
            yield any_of([RowCondition(_LABELLED, tuple(label)), *more])
        if placed := list(self.job.conditions):
            where = all_of(placed)
            sql = (
                f"(source, session) IN (SELECT source, session FROM part.places WHERE {where.sql})"  # noqa: S608 - our own words
            )
            yield any_of([where._replace(sql=sql), *more])

    def _of_streams(self, *more: str) -> Iterator[RowCondition]:
        if self.streams is not None:
            yield one_of("stream", (*self.streams, *more))


class OpenRange(NamedTuple):
    """A range of time, from `since` to `until` (Unix ns). It selects the sessions that may have been open within it."""

    since: int | None
    until: int | None

    @property
    def by_times(self) -> RowCondition:
        """SQL condition on `part.session_times`. A session with an unknown begin or end may have been open."""
        return self._both("coalesce(ends >= ?, true)", "coalesce(begins < ?, true)")

    @property
    def by_stated_times(self) -> RowCondition:
        """SQL condition on `part.stated_times`, which is known without reading events. Every session that meets this
        condition also meets `by_times`."""
        return self._both("(NOT closed OR closed_at >= ?)", "opened < ?")

    def _both(self, since: str, until: str) -> RowCondition:
        bounds = ((since, self.since), (until, self.until))
        return all_of([RowCondition(sql, (at,)) for sql, at in bounds if at is not None])


def _joined(word: str, conditions: Sequence[RowCondition], none: RowCondition) -> RowCondition:
    if not conditions:
        return none
    sql = word.join(f"({condition.sql})" for condition in conditions)
    return RowCondition(sql, tuple(value for condition in conditions for value in condition.values))
