"""Rule 5 of `durable`: what a power cut left at the end of the table's log is put right at start.

A version that was not synced may be there in part: its log file empty, cut off or full of zeros, a
data file missing, short, or with holes of zeros. Delta would not open such a table, or open it and
count the missing rows as stored. So the newest versions are read whole, newest first, and from the
lowest one that is not whole upwards all are taken out: their log files are renamed to `N.json.bad`.
None of them was acknowledged. Collectors' positions go back with them, and the rows come again from
the spool. Deleting only the missing *files* (the library's `repair`) would keep the positions.

Not whole means here: the log file does not parse or is empty; an added file that no later good
version removes is missing, has another size, no Parquet footer, a KiB of zeros (zstd leaves none),
does not decode, or holds another number of rows than the log says.
"""

from __future__ import annotations

import mmap
import tempfile
from pathlib import Path

import msgspec
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError, DeltaProtocolError

from tailrace.errors import StoreError, SyncError
from tailrace.store import schema
from tailrace.store.durable import LOG_LOCK, UNSYNCED_MAX, fsync
from tailrace.store.lock import DirectoryLock
from tailrace.store.log import Action, Add, Log, is_parquet
from tailrace.store.refusal import line, os_error, refusal

_ZEROS = bytes(1024)


class Recovery(msgspec.Struct):
    """What was repaired. `reasons` are sentences for the log; empty when all was whole."""

    versions: list[int] = []
    checkpoints: list[int] = []
    reasons: list[str] = []


class _Stats(msgspec.Struct, rename="camel"):
    num_records: int | None = None


def recover(root: Path) -> Recovery:
    """Validate and repair the end of the log in `root`, which need not exist.

    Raise StoreError for what cannot be repaired without leaving out acknowledged rows."""
    log = Log(root)
    if not log.directory.is_dir():
        return Recovery()
    with DirectoryLock(root.parent, name=LOG_LOCK, wait=True):
        try:
            return _Repair(log).run()
        except OSError as error:
            raise refusal(error, str(root), "validate the table") from error


class _Repair:
    def __init__(self, log: Log) -> None:
        self.log = log
        self.done = Recovery()
        self._columns: Schema | None = None

    def run(self) -> Recovery:
        base = self._whole_checkpoint()
        versions = self.log.versions()
        if base < 0 and versions and versions[0] != 0:
            raise StoreError(
                f"{self.log.root}: its log begins at version {versions[0]} and there is no checkpoint"
                " below: restore the table from a copy"
            )
        doubted = [version for version in versions if version > base][-UNSYNCED_MAX:]
        bad = self._lowest_bad(doubted, base)
        if bad is not None:
            self._take_out([version for version in doubted if version >= bad])
        if self.done.reasons:
            _sync_repair(self.log.directory)
        return self.done

    # Checkpoints

    def _whole_checkpoint(self) -> int:
        """The version of the newest whole checkpoint, -1 without; those above it are removed."""
        whole = -1
        parts = self.log.checkpoints()
        for version in sorted(parts, reverse=True):
            reason = self._checkpoint_damage(version, parts[version])
            if reason is None:
                whole = version
                break
            self._remove_checkpoint(version, parts, reason)
        last = self.log.last_checkpoint()
        if self.log.last_checkpoint_path.exists() and (
            last is None or last.version not in self.log.checkpoints()
        ):
            self.log.last_checkpoint_path.unlink()
            self.done.reasons.append("_last_checkpoint named no checkpoint: removed")
        return whole

    def _checkpoint_damage(self, version: int, parts: list[Path]) -> str | None:
        if not all(is_parquet(path) for path in parts):
            return "is not whole"
        try:
            DeltaTable(str(self.log.root), version=version).transaction_version("")
        except Exception as error:
            if os_error(error) is not None or isinstance(error, DeltaProtocolError):
                raise refusal(error, str(self.log.root), f"read checkpoint {version}") from error
            return f"cannot be read: {line(error)}"
        return None

    def _remove_checkpoint(self, version: int, parts: dict[int, list[Path]], reason: str) -> None:
        """Only where the log files that it stands for are all there."""
        versions = set(self.log.versions())
        first = version
        while first in versions and first - 1 not in parts:
            first -= 1
        if first not in versions and first != -1:
            raise StoreError(
                f"{self.log.root}: checkpoint {version} {reason}, and log file {first} is gone:"
                " restore the table from a copy"
            )
        for path in parts[version]:
            path.unlink()
        self.done.checkpoints.append(version)
        self.done.reasons.append(f"checkpoint {version} {reason}: removed")

    # Versions

    def _lowest_bad(self, doubted: list[int], base: int) -> int | None:
        """The lowest of `doubted` that is not whole. The table can be opened at `base`, if any."""
        if base < 0 and 0 in doubted and (reason := self._unreadable(0)):
            self.done.reasons.append(f"version 0 {reason}: taken out with all above it")
            return 0
        bad: int | None = None
        removed: set[str] = set()
        for version in reversed(doubted):
            reason = self._damage(version, removed, base)
            if reason is not None:
                bad = version
                removed.clear()
                self.done.reasons.append(f"version {version} {reason}: taken out")
        return bad

    def _damage(self, version: int, removed: set[str], base: int) -> str | None:
        """What is wrong with a version but for its files in `removed`; else adds to those."""
        below = version - 1
        if below > base and not self.log.path(below).exists():
            return f"is there without version {below}"
        if reason := self._unreadable(version):
            return reason
        actions = self.log.read(version)
        for action in actions:
            if action.meta_data:
                stated = action.meta_data.configuration.get(schema.VERSION_PROPERTY)
                root = str(self.log.root)
                schema.refuse_newer(schema.parse_version(stated, root), root)
        live = [a.add for a in actions if a.add and a.add.path not in removed]
        for add in live:
            if reason := _file_damage(self.log.data_path(add), add.size):
                return f"has {add.path}, which {reason}"
        if live and (reason := self._decode(live, base)):
            return reason
        removed.update(action.remove.path for action in actions if action.remove)
        return None

    def _unreadable(self, version: int) -> str | None:
        try:
            self.log.read(version)
        except ValueError as error:
            return f"cannot be read: {error}"
        return None

    def _decode(self, files: list[Add], base: int) -> str | None:
        """Read all rows of `files` through a scratch table that consists of nothing else."""
        with tempfile.TemporaryDirectory(prefix="tailrace-") as scratch:
            table = DeltaTable.create(scratch, self._schema(base), partition_by=["day"])
            copy = Log(Path(scratch))
            for file in files:
                link = copy.data_path(file)
                link.parent.mkdir(exist_ok=True)
                link.symlink_to(self.log.data_path(file).resolve())
            lines = (msgspec.json.encode(Action(add=file)) for file in files)
            copy.path(1).write_bytes(b"\n".join(lines))
            table.update_incremental()
            try:
                rows = sum(batch.num_rows for batch in table.scan())
            except Exception as error:  # the library has no type for damaged data
                if os_error(error) is not None:
                    raise StoreError(
                        f"{self.log.root}: cannot be validated: {line(error)}"
                    ) from error
                return f"does not decode: {line(error)}"
        stated = [_rows(file) for file in files]
        expected = rows if None in stated else sum(number or 0 for number in stated)
        return None if rows == expected else f"has {rows} of {expected} rows"

    def _schema(self, base: int) -> Schema:
        """The columns of the table. Raise StoreError if it is not one that we write."""
        if self._columns is None:
            try:
                table = DeltaTable(str(self.log.root), version=max(base, 0))
            except DeltaError as error:
                raise refusal(error, str(self.log.root), "open the table") from error
            schema.check_writable(table)
            self._columns = table.schema()
        return self._columns

    def _take_out(self, versions: list[int]) -> None:
        """The newest first, so that a cut while at it leaves no hole."""
        for version in reversed(versions):
            path = self.log.path(version)
            path.rename(path.with_name(f"{path.name}.bad"))
            self.done.versions.append(version)


def _file_damage(path: Path, size: int) -> str | None:
    try:
        found = path.stat().st_size
    except FileNotFoundError:
        return "is missing"
    if found != size:
        return f"has {found} of {size} bytes"
    if not is_parquet(path):
        return "has no Parquet footer"
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data.find(_ZEROS) >= 0:
            return "has a hole of zeros"
    return None


def _rows(file: Add) -> int | None:
    """How many rows the log says there are; None where it does not."""
    return msgspec.json.decode(file.stats or b"{}", type=_Stats).num_records


def _sync_repair(directory: Path) -> None:
    try:
        fsync(directory)
    except OSError as error:
        raise SyncError(f"{directory}: the repair cannot be brought to disk: {error}") from error
