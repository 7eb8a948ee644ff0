"""Keep the table small and fast by upkeep, which merges small files, deletes old days and vacuums.

`run` works in a separate process, because a merge takes up to 150 MB of memory that the allocator does not return.
Writers never wait for an upkeep: a step that conflicts with a writer is retried once, and then left to the next run.

A first merge combines small files into files of 4 MiB, and a second merge combines these into files of `compact_size`;
with only one kind of merge, each row would be copied a dozen times. A merge takes 0.4 to 0.5 CPU s for a million rows.
A damaged file is set aside and never merged. Days are deleted before files are merged, because merging needs disk
space.

A clock that is set far ahead makes every day look old. So `retention` searches for a *jump*: a time without rows that
is longer than half of `retention_age`, and longer than a day. Days before a jump keep the age that they had when it
began. This ends when the days with rows after the jump span half of `retention_age` (at least a day), or when a user
confirms the clock. The newest day is never deleted for its age."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from deltalake import DeltaTable

from tailrace.clock import Clock
from tailrace.config.schema import StoreConfig
from tailrace.filesystem import is_local
from tailrace.store import durable, layout
from tailrace.store.damage import Damaged, counts_of, set_aside
from tailrace.store.layout import DataFile, data_files, date_of
from tailrace.store.log import DeltaLog, Journal
from tailrace.store.refusal import is_conflict, line, refusal, refusing
from tailrace.store.turn import LocalTurn, RemoteTurn, UpkeepState, turn
from tailrace.store.verify import damage

DAY_NS = 86_400 * 10**9


class Jump(NamedTuple):
    """A long time without rows, after which the clock may be wrong. `before` and `after` are the days with rows around
    it (day numbers from 1970-01-01)."""

    before: int
    after: int

    def __str__(self) -> str:
        before, after = date_of(self.before), date_of(self.after)
        return (
            f"no day is deleted for its age: the table has no rows between {before} and {after}, so the"
            " clock was set, or nobody collected. If the clock is right: tailrace upkeep --clock-is-right"
        )


class Retention(NamedTuple):
    """The days to delete: those before `below`, or no days if `below` is None. If a long time without rows is the
    reason to keep days older than `retention_age`, `held` is this time."""

    below: int | None
    held: Jump | None


def retention(
    files: Sequence[DataFile], config: StoreConfig, now: int, trusted: int = 0
) -> Retention:
    """Return which days to delete at time `now` (Unix ns). `trusted` is the time (Unix ns) at which a user last
    confirmed the clock, or 0."""
    sizes: Counter[int] = Counter()
    for file in files:
        sizes[file.day] += file.size
    below, held = _by_age(sizes, config, now, trusted)
    if config.retention_size is not None:
        excess = sizes.total() - config.retention_size
        for day in sorted(sizes):
            if excess <= 0 or day >= now // DAY_NS:
                break
            excess -= sizes[day]
            below = max(below, day + 1)
    return Retention(below if any(day < below for day in sizes) else None, held)


def _by_age(
    days: Iterable[int], config: StoreConfig, now: int, trusted: int
) -> tuple[int, Jump | None]:
    """Return the first day to keep because of `retention_age`. If older days are kept as well because of a long time
    without rows, also return this time, otherwise None."""
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
    """Return the first period without rows that is longer than `longest` days and makes the present wall time doubtful,
    or None.

    The wall time is doubtful until the rows after such a period cover `longest` days. `days` are the days with rows,
    sorted. Ignore a period without rows that ended by the day `trusted`."""
    jumps = [
        Jump(before, after)
        for before, after in zip(days, [*days[1:], today], strict=True)
        if after - before > longest and after > trusted
    ]
    ends = [jump.before for jump in jumps[1:]] + [days[-1]]
    pairs = zip(jumps, ends, strict=False)
    return next((jump for jump, end in pairs if end - jump.after < longest), None)


FIRST_SIZE = 4 * 2**20
"""Target size (bytes) of files after a first merge."""

FIRST_FILES = 30
"""Minimum number of small files (below half of `FIRST_SIZE`) that a day must have for a first merge."""

CROWDED = 60
"""If one day has this number of small files, an upkeep is due at once, not only at the end of the hour."""

SECOND_FILES = 200
"""If one day has more than this number of files smaller than half of `compact_size`, a second merge is due at once."""

HOUR_NS = 3600 * 10**9

_STAGING = re.compile(r".*#\d+")
"""Pattern for the names of temporary files of the Delta library, which a killed process leaves behind."""


class Merge(NamedTuple):
    """A merge of those files of a day that are smaller than `size` bytes, into files of about `size` bytes."""

    day: int
    size: int


class Plan(NamedTuple):
    """The due steps of an upkeep, in order.

    - `delete_below`, `held`: which days to delete, and why older days are kept; see `below` and `held` of `Retention`.
    - `vacuum`: `removed` to delete the files that the log lists as removed, `all` to delete also those that the log
      does not mention.
    - `second`: whether `merges` are second merges, which make files of `compact_size`, or first merges, which make
      files of `FIRST_SIZE`."""

    delete_below: int | None
    held: Jump | None
    vacuum: Literal["removed", "all"] | None
    second: bool
    merges: list[Merge]


class UpkeepReport(msgspec.Struct):
    """The results of one upkeep.

    `busy` is a message if another upkeep prevented this one. `skipped` lists the steps that were left to the next run.
    `held` explains why days older than `retention_age` are kept. `damaged` has a message for each damaged file."""

    busy: str = ""
    deleted_days: list[str] = []
    held: str = ""
    vacuumed_files: int = 0
    merged_files: int = 0
    made_files: int = 0
    skipped: list[str] = []
    damaged: list[str] = []
    seconds: float = 0.0


def decide(files: Sequence[DataFile], state: UpkeepState, config: StoreConfig, now: int) -> Plan:
    """Return the steps that are due at `now` (Unix ns) for a table with the given files."""
    below, held = retention(files, config, now, state.trusted)
    kept = [file for file in files if below is None or file.day >= below]
    mergeable = Counter(file.day for file in kept if file.size < config.compact_size // 2)
    second = _due(state.merged, HOUR_NS, now) or any(n > SECOND_FILES for n in mergeable.values())
    if second:
        merges = [Merge(day, config.compact_size) for day, n in mergeable.items() if n > 1]
    else:
        merges = [Merge(day, FIRST_SIZE) for day, n in _small(kept).items() if n >= FIRST_FILES]
    vacuum: Literal["removed", "all"] | None = None
    if _due(state.swept, DAY_NS, now):
        vacuum = "all"
    elif _due(state.vacuumed, HOUR_NS, now):
        vacuum = "removed"
    return Plan(below, held, vacuum, second, sorted(merges))


def calls(files: Sequence[DataFile], state: UpkeepState, config: StoreConfig, now: int) -> bool:
    """Return whether an upkeep is due. In a new table, merges and vacuums wait until the table has `CROWDED` files."""
    plan = decide(files, state, config, now)
    known = state.merged > 0 or len(files) >= CROWDED
    hourly = known and (plan.vacuum is not None or (plan.second and bool(plan.merges)))
    crowded = any(count >= CROWDED for count in _small(files).values())
    return plan.delete_below is not None or hourly or crowded


def look(path: str, config: StoreConfig, clock: Clock) -> tuple[bool, Jump | None]:
    """Return whether an upkeep of the store `path` is due while no upkeep runs. If days older than `retention_age` are
    kept because the clock may have jumped, also return the time without rows that raises this doubt; otherwise None.

    Change nothing, and take no lease. Raise StoreError if the table is not readable."""
    root = layout.table_root(path)
    files = data_files(layout.open_table(root, config.options))
    whose = turn(root, config.options, clock)
    state, now = whose.read(), clock.wall_ns()
    due = calls(files, state, config, now) and not whose.is_taken()
    return due, decide(files, state, config, now).held


def _small(files: Sequence[DataFile]) -> Counter[int]:
    return Counter(file.day for file in files if file.size < FIRST_SIZE // 2)


def _due(last: int, every: int, now: int) -> bool:
    """Return whether a step of upkeep is due, which was last performed at `last` and is repeated after `every`. The
    step is also due if `last` is in the future, because the clock was then corrected since."""
    return not last <= now < last + every


def run(
    path: str,
    config: StoreConfig,
    *,
    clock: Clock,
    everything: bool = False,
    clock_is_right: bool = False,
    number: int | None = None,
) -> UpkeepReport:
    """Perform the due steps of an upkeep in the store `path`; with `everything`, all merges and vacuums.

    With `clock_is_right`, record that a user confirms the clock. `number` identifies the upkeep (`turn.draw`). Raise
    LockedError if another upkeep runs or has taken the lease, StoreError or FullError for a failed step, and SyncError
    if a sync fails."""
    begun = clock.monotonic()
    root = layout.table_root(path)
    with turn(root, config.options, clock, number) as mine:
        work = _Upkeep(root, config.options, clock, mine)
        state = mine.read()
        if clock_is_right:
            state.trusted = clock.wall_ns()
            mine.write(state)
        if everything:
            state = UpkeepState(trusted=state.trusted)
        table = layout.open_table(root, config.options)
        plan = decide(data_files(table), state, config, clock.wall_ns())
        work.report.held = str(plan.held or "")
        # A vacuum removes replaced files, so the versions that replaced them must be on disk before.
        work.sync_newest()
        if plan.delete_below is not None:
            work.delete(plan.delete_below)
        if plan.vacuum is not None and work.vacuum(everything=plan.vacuum == "all"):
            state.vacuumed = clock.wall_ns()
            if plan.vacuum == "all":
                state.swept = state.vacuumed
            mine.write(state)
        if plan.vacuum == "all":
            work.set_damaged_aside(lambda _: True)
        merged = [work.merge(merge) for merge in plan.merges]
        if plan.second and all(merged):
            state.merged = clock.wall_ns()
            mine.write(state)
        work.report.seconds = clock.monotonic() - begun
        return work.report


class _Upkeep:
    """The steps of an upkeep. Methods return whether their step succeeded; a failed step is left to the next run."""

    def __init__(
        self, root: str, options: dict[str, str], clock: Clock, mine: LocalTurn | RemoteTurn
    ) -> None:
        self.report = UpkeepReport()
        self._root = root
        self._options = options
        self._clock = clock
        self._turn = mine
        self._local = Path(root) if is_local(root) else None

    def sync_newest(self) -> None:
        if self._local is not None:
            durable.sync_newest(self._local)

    def delete(self, below: int) -> bool:
        """Delete the days before `below` from the table. Their files stay on disk until a vacuum."""

        def step(table: DeltaTable) -> None:
            days = sorted({file.day for file in data_files(table) if file.day < below})
            table.delete(f"day < '{date_of(below)}'", post_commithook_properties=durable.NO_HOOKS)
            self.report.deleted_days += [str(date_of(day)) for day in days]

        return self._step("delete old days", step)

    def vacuum(self, *, everything: bool) -> bool:
        """Remove data files that no version of the last hour needs; with `everything`, also files without a log entry."""

        def step(table: DeltaTable) -> None:
            removed = table.vacuum(
                layout.REMOVED_HOURS,
                dry_run=False,
                # The library would refuse `REMOVED_HOURS`, which is less than the table's `REMOVED_RETENTION`.
                enforce_retention_duration=False,
                full=everything,
                post_commithook_properties=durable.NO_HOOKS,
            )
            self.report.vacuumed_files += len(removed)

        done = self._step("vacuum", step)
        if everything and self._local is not None:
            self.report.vacuumed_files += _remove_staging(self._local, self._clock.wall_ns())
        return done

    def set_damaged_aside(self, chosen: Callable[[DataFile], bool]) -> None:
        """Compare the `chosen` data files of a local table with their checksums. Replace damaged ones by gap rows."""
        if (root := self._local) is None:
            return
        with refusing(root, "verify files"):
            journal = Journal(root).read()
            bad = [
                Damaged(file, reason)
                for file in data_files(layout.open_table(self._root, self._options))
                if chosen(file) and (reason := damage(root, file, journal.files.get(file.path)))
            ]
        if bad:
            self.report.damaged += set_aside(root, bad, self._clock)

    def merge(self, merge: Merge) -> bool:
        """Merge the files of a day that are smaller than `merge.size`. The rows of each file stay in order."""
        self.set_damaged_aside(lambda file: file.day == merge.day and file.size < merge.size)

        def step(table: DeltaTable) -> None:
            if table.metadata().configuration.get(layout.STATISTICS) != layout.MERGED_STATED:
                table.alter.set_table_properties(
                    {layout.STATISTICS: layout.MERGED_STATED},
                    post_commithook_properties=durable.NO_HOOKS,
                )
            done = table.optimize.compact(
                [("day", "=", date_of(merge.day))],
                target_size=merge.size,
                max_concurrent_tasks=1,
                writer_properties=layout.writer_properties(layout.MERGED_ROW_GROUP),
                post_commithook_properties=durable.NO_HOOKS,
            )
            self.report.merged_files += done["numFilesRemoved"]
            self.report.made_files += done["numFilesAdded"]

        return self._step(f"merge {date_of(merge.day)}", step)

    def _step(self, what: str, step: Callable[[DeltaTable], None]) -> bool:
        """Run `step` on the newest version of the table, and sync its new files. Return whether it succeeded. If the
        step conflicts with a writer, retry it once, and then report it as skipped."""
        for last in (False, True):
            table = layout.open_table(self._root, self._options)
            self._turn.check(table)
            before = table.version()
            try:
                step(table)
            except Exception as error:
                self.sync_newest()
                if not is_conflict(error):
                    raise refusal(error, self._root, what) from error
                if last:
                    self.report.skipped.append(f"{what}: {line(error)}")
                continue
            if self._local is not None:
                durable.sync(self._local, before, table.version())
                # Ignore an error: the new files are intact, but cannot be verified later without checksums in the
                # journal.
                with suppress(OSError):
                    _note(self._local, range(before + 1, table.version() + 1))
            return True
        return False


def _note(root: Path, versions: range) -> None:
    """Add to the table's journal the table versions that a step has written, with the numbers of rows in their
    files."""
    journal, log = Journal(root), DeltaLog(root)
    journal.note(versions, merges=True)
    for version in versions:
        for action in log.read(version):
            if action.add and (counts := counts_of(log.data_path(action.add))) is not None:
                journal.note_rows(action.add.path, counts)


def _remove_staging(root: Path, now: int) -> int:
    """Remove old temporary files of the Delta library. Return the number of removed files."""
    removed = 0
    for path in root.rglob("*#*"):
        try:
            old = path.stat().st_mtime_ns < now - layout.REMOVED_HOURS * HOUR_NS
        except FileNotFoundError:
            # The library has completed this temporary file and renamed it, so there is nothing to remove.
            continue
        if old and _STAGING.fullmatch(path.name):
            path.unlink(missing_ok=True)
            removed += 1
    return removed
