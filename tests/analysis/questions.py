"""Ask random questions of random stores that have lost something, and of their lossless twins.

Plain Python computes the truth from the spans as their producers made them. `python -m benchmarks.bounds` asks many
questions.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import tailrace
from tailrace.analysis.bounds import Interval
from tailrace.config.load import load
from tailrace.configuration import transports
from tailrace.errors import UnknownError
from tailrace.importing.importing import Wanted, take
from tailrace.store import presence
from tests.analysis import twins
from tests.ingest.log import run
from tests.query.tables import DAY, commit

KEYS = ("name", "category", "source", "format", "stream", "file")


class Question(NamedTuple):
    """Keys for grouping, and filters. `file` stands for the session that has the file, or the connection of this peer."""

    by: list[str]
    source: str | None
    file: str | None
    stream: str | None
    since: int | None
    until: int | None

    @classmethod
    def random(cls, rng: random.Random, spans: list[twins.Made]) -> Question:
        one = rng.choice(spans)
        chosen = [each if rng.random() < 0.25 else None for each in (one.source, one.file, one.stream)]  # fmt: skip
        walls = [span.wall for span in spans if span.wall is not None]
        times = [rng.choice(walls) if rng.random() < 0.4 else None for _ in range(2)]
        return cls(rng.sample(KEYS, rng.choice((0, 1, 1, 2))), *chosen, *times)

    def selects(self, span: twins.Made) -> bool:
        if (self.since is not None or self.until is not None) and span.wall is None:
            return False
        return (
            self.places(span)
            and self.stream in (None, span.stream)
            and (self.since is None or span.wall >= self.since)
            and (self.until is None or span.wall < self.until)
        )

    def places(self, span: twins.Made) -> bool:
        return self.source in (None, span.source) and self.file in (None, span.file)

    def ask(self, store: tailrace.Store, files: dict[str, str]) -> dict[tuple, dict[str, Interval | None]]:  # fmt: skip
        """Return the intervals of each group, by the values of its keys and its unit. `files` has the file of each
        session."""
        by = ["session" if key == "file" else key for key in self.by]
        filters = {key: value for key, value in self._asdict().items() if value is not None and key not in ("by", "file")}  # fmt: skip
        if self.file is not None:
            filters["session"] = [session for session, file in files.items() if file == self.file]
        try:
            rows = store.stats(by, **filters) if filters.get("session") != [] else []
        except UnknownError:  # all events of this source or stream are lost
            return {}
        at = by.index("session") if "session" in by else None
        found = {}
        for row in rows:
            group = list(row.group)
            if at is not None:
                group[at] = files[group[at]]
            found[*group, row.unit] = row.bounds
        return found


def truth(question: Question, spans: Iterable[twins.Made]) -> dict[tuple, dict[str, int]]:
    """Return the figures of each group of spans, by the values of its keys and its unit."""
    groups: dict[tuple, list[twins.Made]] = defaultdict(list)
    for span in filter(question.selects, spans):
        groups[*(getattr(span, key) for key in question.by), span.unit].append(span)
    return {key: _figures(group) for key, group in groups.items()}


def _figures(group: list[twins.Made]) -> dict[str, int]:
    lengths = sorted(span.length for span in group)
    ranked = {f"p{q}": lengths[-(-q * len(lengths) // 100) - 1] for q in (50, 90, 95, 99)}
    own = sum(span.own for span in group)
    return {"count": len(group), "total": sum(lengths), "self": own, "min": lengths[0], **ranked, "max": lengths[-1]}  # fmt: skip


class Twins:
    """The path of a store that has lost something, and that of its lossless twin."""

    def __init__(self, root: Path, seed: int) -> None:
        self._rng = random.Random(seed)
        traces = twins.traces(self._rng)
        self.spans = [span for trace in traces for span in trace.spans]
        losses = {t.path: self._rng.choice(twins.LOSSES[t.format]) for t in traces if self._rng.random() < 0.6}  # fmt: skip
        self.losses = {path: loss.__name__ for path, loss in losses.items()}
        for trace in traces:
            trace.write(root / "whole", trace.data, named=True)
            loss = losses.get(trace.path, twins.nothing)
            trace.write(root / "lossy", loss(self._rng, trace), named=loss is not twins.unnamed)
        dies = self._rng.random() < 0.15
        self.whole, _ = self._store(root / "whole", seed, lossy=False, dies=False)
        self.lossy, live = self._store(root / "lossy", seed, lossy=True, dies=dies)
        self.spans += live
        self._touched = {s.file for s in self.spans if dies or s.file in losses or s in live}

    def _store(self, traces: Path, seed: int, *, lossy: bool, dies: bool) -> tuple[Path, list[twins.Made]]:  # fmt: skip
        """Import traces, and commit what a collector has received beside them."""
        store = imported(traces)
        entries, spans = twins.live(self._rng, lossy=lossy, seed=seed, dies=dies)
        commit(store, [row | {"day": DAY} for row in run(entries)[1]])
        if dies:
            presence.begin(store)
        return store, spans

    def answers(self, questions: int) -> Iterator[list[Answer]]:
        """Ask random questions. Yield the answers to each, a group of spans each. The lossless twin answers each fourth
        question, too."""
        with tailrace.open(str(self.whole)) as whole, tailrace.open(str(self.lossy)) as lossy:
            files = {store: _files(store) for store in (whole, lossy)}
            several = [file for file, n in Counter(files[lossy].values()).items() if n > 1]
            for number in range(questions):
                question = Question.random(self._rng, self.spans)
                touched = any(s.file in self._touched for s in self.spans if question.places(s))
                sides = [(lossy, touched), *([(whole, False)] if number % 4 == 0 else [])]
                answers = []
                for store, lost in sides:
                    found, true = question.ask(store, files[store]), truth(question, self.spans)
                    answers += [
                        Answer(question, group, found.get(group), true.get(group), lost)
                        for group in found.keys() | true.keys()
                        if store is whole or not set(several) & set(group)
                    ]
                yield answers


class Answer(NamedTuple):
    """The intervals of a group of spans, and the truth. Each of both is None if there is no such group. `touched` is
    whether a loss may have touched the answer."""

    question: Question
    group: tuple
    intervals: dict[str, Interval | None] | None
    truth: dict[str, int] | None
    touched: bool

    @property
    def told(self) -> list[tuple[str, Interval]]:
        """The intervals of an answer that a loss may have touched, and that has a truth."""
        if not self.touched or not self.truth or not self.intervals:
            return []
        return [(figure, its) for figure, its in self.intervals.items() if its is not None]

    @property
    def wrong(self) -> list[str]:
        """The figures whose interval does not hold the truth, or is no point although nothing touches it. A group that
        is not there is wrong only if nothing is missing."""
        if self.intervals is None:
            return [] if self.touched else ["group"]
        true = self.truth or {"count": 0}
        return [figure for figure, its in self.intervals.items() if figure in true
                and not (its and _holds(its, true[figure]) and (self.touched or its.is_point))]  # fmt: skip


def _holds(interval: Interval, value: int) -> bool:
    low, high = interval
    return (low is None or low <= value) and (high is None or value <= high)


def _files(store: tailrace.Store) -> dict[str, str]:
    """Return the path of the file of each session below the imported directory, or the address of its peer."""
    peers = {row["session"]: row["peer"] for row in store.sessions()}
    return {session: peer.split("/whole/")[-1].split("/lossy/")[-1] for session, peer in peers.items()}  # fmt: skip


def imported(traces: Path) -> Path:
    """Import the traces in a directory into a store beside it. Return the store."""
    store = traces.with_name(f"{traces.name}_store")
    flags = {"store": str(store), "listen": None}
    loaded = load(None, environ={}, flags=flags, formats=transports)
    take(loaded, Wanted((traces,)), _silent)
    return store


@contextmanager
def _silent() -> Iterator:
    yield lambda _progress: None
