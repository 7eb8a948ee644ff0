"""Upgrades what another version of Tailrace has left on disk, or refuses it.

Nothing is changed before all of it is known to be readable, so that a refusal leaves the other version
its work. Then the table goes first and the decoder state second; whoever is interrupted between any
two steps, or within one, starts again and finds either what was or what is to be.
"""

from __future__ import annotations

import logging

from tailrace.errors import FullError, StoreError
from tailrace.ingest import upgrade
from tailrace.ingest.state import VERSION
from tailrace.spool.checkpoint import Checkpoint, Checkpoints
from tailrace.store.schema import SCHEMA_VERSION
from tailrace.store.table import Table

_ANY = 2**64 - 1

logger = logging.getLogger(__name__)


def refuse_unknown(checkpoints: Checkpoints) -> None:
    """Raise StoreError where the newest decoder state is of a version that cannot be read: to be
    called before the spool is opened, whose entries may be of that version, too."""
    newest = checkpoints.newest(_ANY)
    if newest is None:
        return
    version = upgrade.version_of(newest.state)
    if not upgrade.can_upgrade(version):
        known = ", ".join(str(known) for known in (*upgrade.STEPS, VERSION))
        raise StoreError(
            f"{checkpoints.directory}: the decoder state was left by another Tailrace (version"
            f" {version}; this one reads {known}): use that one, or a newer one. To go on without the"
            " state, move the directory away; what of it is not in the table yet is not stored then,"
            " and files that are still there are stored a second time."
        )


def is_wanted(table: Table, checkpoint: Checkpoint | None) -> bool:
    """Return whether the table or the decoder state is of another version."""
    if table.schema_version != SCHEMA_VERSION:
        return True
    return checkpoint is not None and upgrade.version_of(checkpoint.state) != VERSION


def upgrade_table(table: Table) -> None:
    """Raise StoreError or FullError where its schema cannot be changed."""
    for step in table.upgrade():
        logger.info(
            "%s: has schema %d now (%s); a Tailrace that knows less will not write to it",
            table.root, step.version, step.news,
        )  # fmt: skip


def upgrade_state(checkpoints: Checkpoints, checkpoint: Checkpoint) -> None:
    """Save a checkpoint as of this version, in its place, if it is of another and there is room."""
    version = upgrade.version_of(checkpoint.state)
    if version == VERSION:
        return
    try:
        checkpoints.save(checkpoint.position, upgrade.upgraded(checkpoint.state))
    except FullError as error:
        logger.warning("decoder state of version %d stays for now: %s", version, error)
    else:
        logger.info(
            "%s: has decoder state of version %d now, was %d",
            checkpoints.directory, VERSION, version,
        )  # fmt: skip
