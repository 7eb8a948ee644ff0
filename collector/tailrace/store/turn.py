"""Allow only one upkeep (merges and clean-up) at a time on a table, by a lease.

The library (deltalake 1.6.6) lets two merges of the same files succeed, and then the table has every row twice. For the
same reason no other program may merge (OPTIMIZE in Spark) during an upkeep.

On a local disk the lease is a kernel lock. At a URL it is a transaction in the table, which ends after `LEASE_NS`.
There, an alarm kills a process that runs for half of this time, because it might commit a merge after the end of its
lease."""

from __future__ import annotations

import random
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

import msgspec
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError

from tailrace import owned
from tailrace.clock import Clock
from tailrace.errors import FullError, LockedError, LostError, StoreError
from tailrace.filesystem import is_local
from tailrace.store import layout
from tailrace.store.durable import NO_HOOKS
from tailrace.store.presence import DirectoryLock, is_held
from tailrace.store.refusal import is_conflict, refusal, refusing
from tailrace.store.schema import SCHEMA

LOCK_NAME = "upkeep.lock"
STATE_NAME = "upkeep.json"

LEASE_NS = 2 * 3600 * 10**9
"""Duration (ns) of the lease. It is much longer than an upkeep takes, and much longer than the difference between the
clocks of two hosts."""

HOLDER = "tailrace/upkeep"
"""Id of the Delta transaction that contains the lease in a table at a URL. Its version is the number of the process
that holds the lease (`draw`), or 0 if none does."""

TRIES = 7
DELAY = 0.05
"""Delay (seconds) before the second try to write a transaction; doubled for each further try."""


class UpkeepState(msgspec.Struct):
    """The times (Unix ns) of the last merge (`merged`), the last vacuum (`vacuumed`), and the last vacuum of all files
    (`swept`)."""

    merged: int = 0
    vacuumed: int = 0
    swept: int = 0
    trusted: int = 0
    """Time (Unix ns) at which a user last confirmed that the clock is right."""


def draw(clock: Clock) -> int:
    """Return a unique number for an upkeep: its start time (Unix ns) with 20 random lowest bits."""
    return clock.wall_ns() >> 20 << 20 | random.getrandbits(20)


def turn(
    root: str, options: dict[str, str], clock: Clock, number: int | None = None
) -> LocalTurn | RemoteTurn:
    """Return the object that takes the lease of the table in `root`, a directory or URL. `number` identifies the upkeep
    in a lease at a URL. If it is None, a number is drawn."""
    if is_local(root):
        return LocalTurn(Path(root).parent)
    return RemoteTurn(root, options, clock, draw(clock) if number is None else number)


class LocalTurn:
    """The lease for one upkeep of a local table. Entering it raises LockedError while another upkeep runs."""

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
        """Return whether any process holds the lease."""
        return is_held(self._store, LOCK_NAME)

    def check(self, _: DeltaTable) -> None:
        """Raise LockedError if another upkeep has taken the lease from this one."""
        try:
            self._lock.check()
        except (LostError, StoreError) as error:
            raise LockedError(str(error)) from error

    def give_back(self) -> None:
        """Do nothing: the kernel released the lock, which is the lease, when the process ended."""

    def read(self) -> UpkeepState:
        """Return the times of the last steps of upkeep. Without a valid state file they are 0, so all steps are due."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=UpkeepState)
        except (OSError, msgspec.DecodeError):
            return UpkeepState()

    def write(self, state: UpkeepState) -> None:
        with refusing(self._file, "note what was done"):
            owned.write_file(self._file, msgspec.json.encode(state))


class RemoteTurn:
    """The lease for one upkeep of a table at a URL, with the methods of `LocalTurn`."""

    def __init__(self, root: str, options: dict[str, str], clock: Clock, number: int) -> None:
        self._root = root
        self._options = options
        self._clock = clock
        self._mine = number

    def __enter__(self) -> Self:
        # The signal SIGALRM ends the process when half of `LEASE_NS` is over.
        signal.setitimer(signal.ITIMER_REAL, LEASE_NS / 2e9)
        try:
            self._take()
        except StoreError:
            with suppress(StoreError, FullError):
                # Give the lease back: the request that took it may have succeeded although its response was lost.
                self.__exit__()
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
        """End the lease of an upkeep whose process has ended. Raise StoreError or FullError if that fails."""
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
            # After any exception, only the table shows which process has the lease, because the response may have been
            # lost.
            if self._noted(self._open(), HOLDER) == self._mine:
                return
            if not is_conflict(error):
                raise refusal(error, self._root, "begin an upkeep") from error
            raise LockedError(f"{self._root}: another upkeep began at this moment") from error

    def is_taken(self) -> bool:
        return self._taken_since(self._open()) > 0

    def check(self, table: DeltaTable) -> None:
        if self._noted(table, HOLDER) != self._mine:
            raise LockedError(
                f"{self._root}: another upkeep has taken the turn, since this one stood still"
            )

    def read(self) -> UpkeepState:
        table, names = self._open(), UpkeepState.__struct_fields__
        return UpkeepState(*(self._noted(table, f"tailrace/{name}") * 10**6 for name in names))

    def write(self, state: UpkeepState) -> None:
        times = msgspec.structs.asdict(state).items()
        self._try_note(
            {HOLDER: self._mine} | {f"tailrace/{name}": time // 10**6 for name, time in times}
        )

    def _taken_since(self, table: DeltaTable) -> int:
        since = self._noted(table, HOLDER)
        return since if abs(self._clock.wall_ns() - since) < LEASE_NS else 0

    def _noted(self, table: DeltaTable, id_: str) -> int:
        # To read a transaction, the Delta library reads the log, which may fail.
        with refusing(self._root, "read whose turn it is", DeltaError):
            return table.transaction_version(id_) or 0

    def _open(self) -> DeltaTable:
        return layout.open_table(self._root, self._options)

    def _try_note(self, transactions: dict[str, int]) -> None:
        """Write Delta transactions if this process holds the lease. Retry after any error. If the end of a lease were
        not written, no other upkeep could run for `LEASE_NS`."""
        for attempt in range(1, TRIES + 1):
            try:
                table = self._open()
                # A failed attempt may have succeeded nevertheless, if only its response was lost.
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
        """Commit new version numbers of Delta transactions, and no rows. The library refuses the commit if another
        process has set one of these numbers since `table` was opened."""
        now = self._clock.wall_ns() // 10**6
        noted = [Transaction(id_, value, now) for id_, value in transactions.items()]
        table.create_write_transaction(
            [], "append", SCHEMA, ["day"],
            post_commithook_properties=NO_HOOKS,
            commit_properties=CommitProperties(app_transactions=noted),
        )  # fmt: skip
