"""Which days are old enough to be deleted: by the clock, as far as the table confirms the clock.

A clock that is set far ahead makes every day look old. So time without rows in the table counts only
within limits. A *jump* is a time without rows that is longer than half of `retention_age`, and longer
than a day. After a jump, either the clock is wrong or nobody collected: the two look alike. The clock
is believed again once the days after the jump span as much as a jump, or once a person says that it is
right (`UpkeepState.trusted`). Until then the days keep the age that they had before the jump.

So a wrong clock that is noticed in that time deletes no day younger than half of `retention_age`. The
newest day with rows is never deleted for its age.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tailrace.config.schema import StoreConfig
from tailrace.store.layout import date_of
from tailrace.store.snapshot import DataFile

DAY_NS = 86_400 * 10**9


class Jump(NamedTuple):
    """The days before and after a time without rows; days count from 1970-01-01."""

    before: int
    after: int

    def __str__(self) -> str:
        before, after = date_of(self.before), date_of(self.after)
        return (
            f"no day is deleted for its age: the table has no rows between {before} and {after}, so the"
            " clock was set, or nobody collected. If the clock is right: tailrace upkeep --clock-is-right"
        )


class Retention(NamedTuple):
    """Days before `below` are to be deleted; None for no day. `held` is a jump that protects some days."""

    below: int | None
    held: Jump | None


def retention(
    files: Sequence[DataFile], config: StoreConfig, now: int, trusted: int = 0
) -> Retention:
    """Return what to delete at `now`. A person said at `trusted` that the clock was right (both Unix ns)."""
    today = now // DAY_NS
    days = {file.day for file in files}
    below, held = _by_age(days, config, now, trusted)
    below = max(below, _by_size(files, config, today))
    return Retention(below if any(day < below for day in days) else None, held)


def _by_age(
    days: Iterable[int], config: StoreConfig, now: int, trusted: int
) -> tuple[int, Jump | None]:
    """Return the day before which all days are too old, and the jump that protects some of them."""
    today = now // DAY_NS
    known = sorted(day for day in days if day <= today)
    if config.retention_age is None or not known:
        return 0, None
    age = config.retention_age.ns
    below = (now - age) // DAY_NS
    borne_out = sorted({*known, min(trusted // DAY_NS, today)} if trusted else known)
    jump = _jump(borne_out, today, max(1, age // DAY_NS // 2), trusted // DAY_NS)
    if jump is None:
        return min(below, known[-1]), None
    then = min(below, known[-1], ((jump.before + 1) * DAY_NS - age) // DAY_NS)
    return then, jump if any(then <= day < below for day in known) else None


def _jump(days: list[int], today: int, longest: int, trusted: int) -> Jump | None:
    """Return the first jump behind which the clock is not believed; `days` are in order."""
    jumps = [
        Jump(before, after)
        for before, after in zip(days, [*days[1:], today], strict=True)
        if after - before > longest and after > trusted
    ]
    ends = [jump.before for jump in jumps[1:]] + [days[-1]]
    pairs = zip(jumps, ends, strict=False)
    return next((jump for jump, end in pairs if end - jump.after < longest), None)


def _by_size(files: Sequence[DataFile], config: StoreConfig, today: int) -> int:
    """Return the day before which all days are too much; never a day after today."""
    below = 0
    if config.retention_size is not None:
        sizes: Counter[int] = Counter()
        for file in files:
            sizes[file.day] += file.size
        excess = sizes.total() - config.retention_size
        for day in sorted(sizes):
            if excess <= 0 or day >= today:
                break
            excess -= sizes[day]
            below = day + 1
    return below
