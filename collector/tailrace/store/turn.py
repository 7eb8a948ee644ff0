"""A lease that lets one upkeep at a time work on a table, and the times of its last steps.

Two upkeeps at once would do damage: the library (deltalake 1.6.6) lets two merges of the same files
both succeed, and then every row is in the table twice. For the same reason no other program may merge
(Spark's OPTIMIZE) while an upkeep is at work.

On a local disk a turn is a lock, which the kernel ends with the process, and a small file beside it.
At a URL both are transactions in the table (ids `tailrace/...`): there the turn of a process that died
ends after `LEASE_NS`, unless the collector that started it gives it back. A process that stands still for half of that is ended by an alarm, before it runs another
instruction: the library commits a merge to whatever the table is by then, so nothing else would keep a process that
wakes within a merge from storing rows twice. A machine that was frozen as a whole, with its timers, may still do so.
"""

from __future__ import annotations

import random
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol, Self

import msgspec
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError

from tailrace import owned
from tailrace.clock import Clock
from tailrace.errors import FullError, LockedError, LostError, StoreError
from tailrace.store import layout
from tailrace.store.durable import NO_HOOKS
from tailrace.store.presence import DirectoryLock, is_held
from tailrace.store.refusal import is_conflict, refusal
from tailrace.store.schema import SCHEMA

LOCK_NAME = "upkeep.lock"
STATE_NAME = "upkeep.json"

LEASE_NS = 2 * 3600 * 10**9
"""Many times the duration of an upkeep, and more than the clocks of two hosts may differ."""

HOLDER = "tailrace/upkeep"
"""Id of a transaction whose version is the number of the turn (`draw`); 0 when it has ended."""

TRIES = 7
DELAY = 0.05
"""Seconds before the second try to note something; doubles for each further try."""


class UpkeepState(msgspec.Struct):
    """The times of the last steps, in Unix nanoseconds."""

    merged: int = 0
    vacuumed: int = 0
    swept: int = 0
    trusted: int = 0
    """When a person said that the clock was right."""


class Turn(Protocol):
    """A context manager; entering raises LockedError while another upkeep has the turn."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...

    def is_taken(self) -> bool:
        """Return whether an upkeep has the turn now."""
        ...

    def check(self, table: DeltaTable) -> None:
        """Raise LockedError if another upkeep has the turn by now."""
        ...

    def give_back(self) -> None:
        """End the turn, whose process has ended, unless it has ended by itself. Raise StoreError or FullError."""
        ...

    def read(self) -> UpkeepState: ...

    def write(self, state: UpkeepState) -> None: ...


def draw(clock: Clock) -> int:
    """Return a number for a turn that no other has: when it begins (Unix ns), the lowest 20 bits drawn by chance."""
    return clock.wall_ns() >> 20 << 20 | random.getrandbits(20)


def turn(root: str, options: dict[str, str], clock: Clock, number: int | None = None) -> Turn:
    """Return the turn of the table in `root`, a directory or URL: the one with this number, or a new one."""
    if layout.is_local(root):
        return LocalTurn(Path(root).parent)
    return RemoteTurn(root, options, clock, number)


class LocalTurn:
    """The turn of a store in a local directory."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._file = store / STATE_NAME
        root = Path(layout.table_root(str(store)))
        self._lock = DirectoryLock(store, name=LOCK_NAME, whole=root if root.is_dir() else None)

    def __enter__(self) -> Self:
        self._lock.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._lock.__exit__(*exc_info)

    def is_taken(self) -> bool:
        return is_held(self._store, LOCK_NAME)

    def check(self, _: DeltaTable) -> None:
        try:
            self._lock.check()
        except (LostError, StoreError) as error:
            raise LockedError(str(error)) from error

    def give_back(self) -> None:
        """Do nothing: the kernel has ended the lock."""

    def read(self) -> UpkeepState:
        """Return the state; a missing or damaged state is an empty one, so that all steps are due."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=UpkeepState)
        except (OSError, msgspec.DecodeError):
            return UpkeepState()

    def write(self, state: UpkeepState) -> None:
        try:
            owned.write_file(self._file, msgspec.json.encode(state))
        except OSError as error:
            raise refusal(error, str(self._file), "note what was done") from error


class RemoteTurn:
    """The turn of a table at a URL."""

    def __init__(
        self, root: str, options: dict[str, str], clock: Clock, number: int | None = None
    ) -> None:
        self._root = root
        self._options = options
        self._clock = clock
        self._mine = draw(clock) if number is None else number

    def __enter__(self) -> Self:
        signal.setitimer(signal.ITIMER_REAL, LEASE_NS / 2e9)  # SIGALRM ends the process
        try:
            self._take()
        except StoreError:
            with suppress(StoreError, FullError):
                self.__exit__()  # it may be ours without our having heard so
            raise
        except BaseException:
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        try:
            self.give_back()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def give_back(self) -> None:
        with suppress(LockedError):
            self._try_note({HOLDER: 0})

    def _take(self) -> None:
        table = self._open()
        if since := self._taken_since(table):
            raise LockedError(
                f"{self._root}: another upkeep has been at work since {since // 10**9} (Unix seconds)"
            )
        try:
            self._note(table, {HOLDER: self._mine})
        except Exception as error:
            # Whatever was raised, only the table can say whose turn it is: the answer may have been lost.
            if self._holder(self._open()) == self._mine:
                return
            if not is_conflict(error):
                raise refusal(error, self._root, "begin an upkeep") from error
            raise LockedError(f"{self._root}: another upkeep began at this moment") from error

    def is_taken(self) -> bool:
        return self._taken_since(self._open()) > 0

    def check(self, table: DeltaTable) -> None:
        if self._holder(table) != self._mine:
            raise LockedError(
                f"{self._root}: another upkeep has taken the turn, since this one stood still"
            )

    def read(self) -> UpkeepState:
        table = self._open()
        seen = {
            name: self._noted(table, f"tailrace/{name}") * 10**6
            for name in UpkeepState.__struct_fields__
        }
        return UpkeepState(**seen)

    def write(self, state: UpkeepState) -> None:
        times = msgspec.structs.asdict(state).items()
        self._try_note(
            {HOLDER: self._mine} | {f"tailrace/{name}": time // 10**6 for name, time in times}
        )

    def _taken_since(self, table: DeltaTable) -> int:
        """Return when the upkeep began that has the turn (Unix ns); 0 if none has it."""
        since = self._holder(table)
        return since if abs(self._clock.wall_ns() - since) < LEASE_NS else 0

    def _holder(self, table: DeltaTable) -> int:
        return self._noted(table, HOLDER)

    def _noted(self, table: DeltaTable, id_: str) -> int:
        try:
            return table.transaction_version(id_) or 0
        except (DeltaError, OSError) as error:  # the library reads the log only now
            raise refusal(error, self._root, "read whose turn it is") from error

    def _open(self) -> DeltaTable:
        return layout.open_table(self._root, self._options)

    def _try_note(self, transactions: dict[str, int]) -> None:
        """Write transactions while the turn is ours. Try again after any error, and begin each try with what the table
        says, since the answer may have been lost. A turn that did not end would keep all others waiting for `LEASE_NS`."""
        for attempt in range(1, TRIES + 1):
            try:
                table = self._open()
                if all(self._noted(table, id_) == value for id_, value in transactions.items()):
                    return
                self.check(table)
                self._note(table, transactions)
            except LockedError:
                raise
            except Exception as error:
                if attempt == TRIES:
                    raise refusal(error, self._root, "note what was done") from error
                time.sleep(DELAY * 2 ** (attempt - 1))
                continue
            return

    def _note(self, table: DeltaTable, transactions: dict[str, int]) -> None:
        """Write a version without rows. The library refuses it if one of the ids changed since `table`."""
        now = self._clock.wall_ns() // 10**6
        table.create_write_transaction(
            [],
            "append",
            SCHEMA,
            ["day"],
            post_commithook_properties=NO_HOOKS,
            commit_properties=CommitProperties(
                app_transactions=[
                    Transaction(id_, value, now) for id_, value in transactions.items()
                ]
            ),
        )
