"""Rule 3 of `recovery`: damaged versions at the end of the log are taken out where the spool still has their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tailrace.away import move_away
from tailrace.errors import StoreError
from tailrace.store import schema
from tailrace.store.aside import ENGINE, Damaged
from tailrace.store.durable import unsynced_max
from tailrace.store.examine import damage
from tailrace.store.journal import Journal, Notes
from tailrace.store.log import Action, DeltaLog
from tailrace.store.refusal import refusal
from tailrace.store.snapshot import DataFile

Refills = Callable[[int | None], bool]
"""Return whether the spool still has all rows from a position on; None stands for its beginning."""

Others = Mapping[str, Refills]
"""The same of the spools of all other collectors of the store, by collector."""


class EndRepair(NamedTuple):
    """The versions that were taken out, with sentences that say why, and the damaged files of those that stay."""

    versions: list[int]
    reasons: list[str]
    damaged: list[Damaged]


class EndOfLog:
    """The versions of a table above its newest checkpoint."""

    def __init__(
        self,
        log: DeltaLog,
        journal: Journal,
        collector: str,
        refills: Refills,
        others: Others,
    ) -> None:
        self._log = log
        self._journal = journal
        self._collector = collector
        self._refills = {**others, collector: refills}

    def repair(self, above: list[int], base: int, notes: Notes) -> EndRepair:
        """Take out what is damaged in the versions `above` the checkpoint `base`, where the rows come again.

        Raise StoreError, with nothing changed, for an entry that nothing restores."""
        actions, broken = self._read(above, base)
        wrong: dict[int, list[Damaged]] = {}
        removed: set[str] = set()
        out: int | None = None
        deeper = False
        doubted = unsynced_max(self._log.root)
        for version in sorted({*actions, *broken}, reverse=True):
            if version in actions and version > above[-1] - doubted:
                found = self._damaged_files(actions[version], removed, notes)
            else:
                found = []
            if found or version in broken:
                wrong[version] = found
            if (found or version in broken or deeper) and self._can_take_out(
                version, actions, broken
            ):
                out, deeper = version, False
                removed.clear()  # the files that versions above replaced are in the table again
            elif version in broken:
                deeper = True  # an entry cannot be set aside; maybe a lower version can be taken out with it
            if version in actions:
                removed.update(action.remove.path for action in actions[version] if action.remove)
        below = {version: found for version, found in wrong.items() if out is None or version < out}
        for version in sorted(below.keys() & broken.keys()):
            raise StoreError(
                f"{self._log.path(version)}: {broken[version]}; the journal has no copy, and the spool"
                " cannot give the rows again: restore the file from a copy, or move"
                f" {self._log.root} away to begin a new table"
            )
        damaged = [each for found in below.values() for each in found]
        if out is None:
            return EndRepair([], [], damaged)
        taken = [v for v in above if v >= out]
        return EndRepair(taken, self._take_out(taken, wrong, broken), damaged)

    def _read(self, above: list[int], base: int) -> tuple[dict[int, list[Action]], dict[int, str]]:
        """Return the actions of the entries `above`, and why other entries cannot be read.

        Raise StoreError for a table of a newer version."""
        actions: dict[int, list[Action]] = {}
        broken: dict[int, str] = {}
        for version in range(base + 1, above[-1] + 1) if above else ():
            try:
                actions[version] = self._log.read(version)
            except FileNotFoundError:
                broken[version] = "is missing"
            except (ValueError, IsADirectoryError) as error:
                broken[version] = f"cannot be read: {error}"
            else:
                self._refuse_newer(actions[version])
        return actions, broken

    def _refuse_newer(self, actions: list[Action]) -> None:
        root = str(self._log.root)
        for action in actions:
            if action.meta_data:
                stated = action.meta_data.configuration.get(schema.VERSION_PROPERTY)
                schema.refuse_newer(schema.parse_version(stated, root), root)

    def _damaged_files(
        self, actions: list[Action], removed: set[str], notes: Notes
    ) -> list[Damaged]:
        """Return the damaged files among those that a version adds, except for the replaced ones in `removed`."""
        found = []
        for action in actions:
            if action.add and action.add.path not in removed:
                file = DataFile.of(action.add)
                if reason := damage(self._log.root, file, notes.files.get(file.path)):
                    found.append(Damaged(file, reason))
        return found

    def _can_take_out(
        self, bad: int, actions: dict[int, list[Action]], broken: dict[int, str]
    ) -> bool:
        """Return whether no row is lost when `bad` and all versions above it are taken out.

        The rows come again from the spools of those who wrote them, and files that were merged away must still
        be there. An entry that cannot be read may be anybody's."""
        if any(version < bad for version in broken):
            return False
        taken = [actions[version] for version in actions if version >= bad]
        above = [action for those in taken for action in those]
        added = {action.add.path for action in above if action.add}
        merges = [those for those in taken if not any(map(_is_ours, those))]
        removed = {action.remove.path for those in merges for action in those if action.remove}
        if not all((self._log.root / path).is_file() for path in removed - added):
            return False
        writers = {self._collector} | _writers(above)
        if any(version >= bad for version in broken):
            writers |= self._refills.keys()
        return writers <= self._refills.keys() and all(
            self._refills[writer](self._position_below(bad, writer)) for writer in sorted(writers)
        )

    def _position_below(self, version: int, collector: str) -> int | None:
        if version == 0:
            return None
        try:
            table = DeltaTable(str(self._log.root), version=version - 1)
            schema.check_writable(table)
            return table.transaction_version(f"{collector}/spool")
        except (DeltaError, OSError) as error:
            raise refusal(error, str(self._log.root), "open the table") from error

    def _take_out(
        self, versions: list[int], wrong: dict[int, list[Damaged]], broken: dict[int, str]
    ) -> list[str]:
        """Take versions out of the log, the newest first, so that a kill in between leaves no hole. Return why."""
        reasons: list[str] = []
        for version in versions:
            reasons += [
                f"version {version} has {each.file.path}, which {each.reason}"
                for each in wrong.get(version, ())
            ]
        reasons += [f"version {version} {reason}" for version, reason in sorted(broken.items())]
        reasons.append(
            f"versions {versions[0]} to {versions[-1]} are taken out; their rows come again from the spool"
        )
        self._journal.forget(versions)
        for version in reversed(versions):
            move_away(self._log.path(version))
        return reasons


def _writers(actions: Iterable[Action]) -> set[str]:
    """Return the collectors that wrote any of these."""
    names = {action.txn.app_id for action in actions if action.txn}
    return {name.removesuffix("/spool") for name in names if not name.startswith("tailrace/")}


def _is_ours(action: Action) -> bool:
    """Return whether the action is the first line of an entry that sets files aside."""
    return action.commit_info is not None and action.commit_info.engine_info == ENGINE
