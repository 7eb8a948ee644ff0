"""Open the files of a collector: locks, spool, table and the state of the ingest.

A start changes nothing until it is known that all files can be read, so a start that is refused leaves the files of
another version of Tailrace as they are. A start may be interrupted at any time. Files of an older version are upgraded
before any source receives: first the table, then the state of the ingest.

A repair of the table may remove rows of other collectors if their spools can restore the rows (`store.recovery`). The
other collectors do not run during a repair, so the repair may open their spools."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path

from tailrace import owned
from tailrace.clock import Clock
from tailrace.config.load import STORE_KEYS, collector_path, quarantine_path, spool_path, store_path
from tailrace.config.schema import Config, SpoolConfig
from tailrace.daemon.context import Health
from tailrace.daemon.loops.commit import Opened
from tailrace.daemon.loops.decode import refills, replay, restored
from tailrace.daemon.starts import Starts
from tailrace.errors import FullError, MemoryLimitError, StoreError, TailraceError, causes
from tailrace.figures import Condition
from tailrace.filesystem import is_local, refusal_text
from tailrace.ingest import state as ingest_state
from tailrace.ingest.state import VERSION
from tailrace.owned import HeldDirectories
from tailrace.spool.checkpoint import Checkpoint, Checkpoints
from tailrace.spool.spool import Spool
from tailrace.store import layout, presence
from tailrace.store.log import DeltaLog
from tailrace.store.presence import DirectoryLock, Entrance, Introduction, RunningMarks, introduce
from tailrace.store.quarantine import Quarantine
from tailrace.store.recovery import Refills
from tailrace.store.schema import SCHEMA_VERSION
from tailrace.store.table import Table

logger = logging.getLogger(__name__)


def _refills(
    directory: Path,
    who: presence.Introduction,
    config: SpoolConfig,
    clock: Clock,
    position: int | None,
) -> bool:
    """Return whether the spool of the collector `who` can restore the collector's rows from `position` on, or all its
    rows if `position` is None. Raise FullError if a full disk prevents the check."""
    path = Path(who.spool)
    if not path.is_dir():
        return False
    try:
        spool = Spool.open(path, config, clock)
    except FullError:
        raise
    except (TailraceError, OSError) as error:
        logger.warning("the spool of another collector cannot be read: %s", error)
        return False
    try:
        has = spool.identity == who.identity and refills(spool, Checkpoints(path), position)
        # The repair may remove the rows that this spool can restore, so the table lacks them until the other collector
        # runs.
        if has and (position or 0) < spool.end:
            presence.begin(directory)
        return has
    finally:
        spool.close()


def _refuse_unknown(checkpoints: Checkpoints) -> None:
    """Raise StoreError if this version of Tailrace cannot read the newest checkpoint. Call this before the spool is
    opened, because the spool's entries may have an unknown version, too."""
    newest = checkpoints.newest(2**64 - 1)
    version = ingest_state.version_of(newest.state) if newest else VERSION
    if not ingest_state.can_upgrade(version):
        known = ", ".join(str(known) for known in (*ingest_state.STEPS, VERSION))
        raise StoreError(
            f"{checkpoints.directory}: another version of Tailrace wrote the decoder state (state version"
            f" {version}; this version reads {known}): use that version, or a newer one. To start without the"
            " state, move the directory away. Data that is not in the table yet is then lost, and the content of"
            " files that still exist is stored a second time."
        )


def _upgrade(table: Table, checkpoints: Checkpoints, checkpoint: Checkpoint | None) -> None:
    """Upgrade the table's schema, and replace a checkpoint of an older version of Tailrace. If the disk is too full for
    the new checkpoint, keep the old one and log a warning.

    Raise StoreError or FullError if the table cannot be changed."""
    for step in table.upgrade():
        logger.info(
            "%s: has schema %d now (%s); older versions of Tailrace cannot write to it any more",
            table.root, step.version, step.news,
        )  # fmt: skip
    if checkpoint is None or (version := ingest_state.version_of(checkpoint.state)) == VERSION:
        return
    try:
        checkpoints.save(checkpoint.position, ingest_state.upgraded(checkpoint.state))
    except FullError as error:
        logger.warning("decoder state of version %d stays for now: %s", version, error)
    else:
        logger.info(
            "%s: has decoder state of version %d now, was %d",
            checkpoints.directory, VERSION, version,
        )  # fmt: skip


@contextmanager
def opened(
    config: Config, clock: Clock, health: Health, starts: Starts | None, working: Callable[[], None]
) -> Iterator[tuple[Opened, RunningMarks]]:
    """Open the files of a collector, yield them, and close them at the end of the block.

    Call `working` repeatedly during a long start. Raise LockedError if another collector holds a lock, StoreError,
    FullError, SyncError or OSError if a file cannot be read or written, and MemoryLimitError if memory is short."""
    store, spool_directory = store_path(config), Path(spool_path(config))
    with ExitStack() as stack:
        if starts:
            stack.push(partial(_end_start, starts))
        directory, entrance = collector_path(config), None
        held: list[_Held] = []
        if is_local(store):
            entrance = _entered(Path(store), directory, stack, held)
        checkpoints = Checkpoints(spool_directory)
        if starts:
            checkpoints.size_max = starts.readable
        _refuse_unknown(checkpoints)
        spool = Spool.open(spool_directory, config.spool, clock)
        stack.callback(spool.close)
        if starts:
            starts.begin(checkpoints)
        table = _open_table(config, clock, health, spool, checkpoints, entrance)
        marks = stack.enter_context(closing(RunningMarks(directory)))
        marks.begin()
        committed = table.position() or 0
        checkpoint = checkpoints.newest(committed)
        if starts:
            _report_too_large(spool, checkpoints, checkpoint, starts)
        ingest = restored(spool, checkpoint, committed)
        ingest.paces.limit(config.metrics.series_max)
        version = ingest_state.version_of(checkpoint.state) if checkpoint else VERSION
        if (table.schema_version, version) != (SCHEMA_VERSION, VERSION):
            # Decode the spool's entries before any file is changed, so that an unreadable entry refuses the start here.
            replay(spool, ingest, committed, health, working)
            _upgrade(table, checkpoints, checkpoint)
        if starts:
            starts.decoding()
        quarantine = Quarantine(quarantine_path(config), config.quarantine)
        held.insert(0, marks)
        if is_local(store):
            held.append(stack.enter_context(HeldDirectories(_directories(store, directory))))
        check = partial(_check, threading.Lock(), held)
        yield Opened(spool, ingest, table, quarantine, checkpoints, committed, check), marks


_Held = DirectoryLock | Entrance | HeldDirectories | RunningMarks


def _entered(store: Path, directory: Path, stack: ExitStack, held: list[_Held]) -> Entrance:
    """Create the collector's directory, lock it and a local store, and append the locks to `held`."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(directory, "made", error) from error
    own = DirectoryLock(directory, whole=None if directory == store else directory)
    held.append(stack.enter_context(own))
    entrance = stack.enter_context(Entrance(store))
    held.append(entrance)
    return entrance


def _check(turn: threading.Lock, held: list[_Held]) -> None:
    """Check that the paths of all locks and directories in `held` lead to the opened files. Any thread may call this."""
    # Check directories first, so that no lock file is created in a replaced directory. The lock `turn` prevents two
    # threads from creating the same lock file at once.
    with turn:
        for each in reversed(held):
            each.check()


def _open_table(
    config: Config,
    clock: Clock,
    health: Health,
    spool: Spool,
    checkpoints: Checkpoints,
    entrance: Entrance | None,
) -> Table:
    """Open the table, and repair a local one if no other collector runs. Then let other collectors start."""
    store, directory = store_path(config), collector_path(config)
    who = Introduction(spool.identity, str(spool.directory.absolute()))
    # For a store at a URL, the only purpose of this file is that readers of the store do not take the collector for one
    # on another host.
    with nullcontext() if entrance else suppress(TailraceError):
        introduce(directory, who)
    others: dict[str, Refills] = {}
    alone = entrance is not None and entrance.alone
    for each in presence.directories(Path(store)).values() if alone else ():
        other = presence.introduction_of(each)
        if other is not None and each != directory:
            others[other.identity] = partial(_refills, each, other, config.spool, clock)
    table = Table.open(
        store, options=config.store.options, collector=spool.identity, config=config.store,
        clock=clock, refills=partial(refills, spool, checkpoints), others=others, alone=alone,
    )  # fmt: skip
    if entrance:
        entrance.admit()
    for reason in table.recovery.reasons:
        logger.warning("%s", reason)
    if table.recovery.aside:
        health.degrade(Condition.DAMAGE, "; ".join(table.recovery.reasons))
    return table


def refuse_foreign(config: Config) -> None:
    """Raise StoreError if other users could replace files in the directories of the collector or of its local store."""
    store, directory = store_path(config), collector_path(config)
    shared = _directories(store, directory) if is_local(store) else [directory]
    for each in (*shared, Path(spool_path(config)), quarantine_path(config)):
        try:
            owned.refuse_foreign(each)
        except OSError as error:
            raise _unusable(each, "looked up", error) from error


def _directories(store: str, directory: Path) -> list[Path]:
    root = Path(layout.table_root(store))
    return [Path(store), directory, root, DeltaLog(root).directory]


def _unusable(directory: Path, what: str, error: OSError) -> StoreError:
    refusal = refusal_text(error.errno, directory)
    return StoreError(
        f"{directory}: cannot be {what}: {refusal}; name another store by {STORE_KEYS}"
    )


def _report_too_large(
    spool: Spool, checkpoints: Checkpoints, checkpoint: Checkpoint | None, starts: Starts
) -> None:
    """Warn about checkpoints that are too large for the memory limit. Raise MemoryLimitError if the start can use
    neither a smaller checkpoint nor a spool that still has all entries."""
    if not checkpoints.too_large:
        return
    message = f"{checkpoints.too_large[0]}, which do not fit: {starts.advice()}"
    if checkpoint is None and spool.begin > 0:
        raise MemoryLimitError(message)
    begin = checkpoint.position if checkpoint else 0
    logger.warning("%s; the start decodes the spool from position %d on instead", message, begin)


def _end_start(starts: Starts, _: object, error: BaseException | None, __: object) -> None:
    """Record that this start was not killed. If it failed for lack of memory, raise MemoryLimitError instead; the next
    start then counts this one as killed."""
    if error is not None and any(isinstance(cause, MemoryError) for cause in causes(error)):
        raise starts.out_of_memory() from error
    starts.end()
