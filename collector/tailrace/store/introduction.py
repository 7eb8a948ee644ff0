"""A collector introduces itself to the others of a local store: its directory has a file that says who it is, and
where its spool is.

The table knows collectors by the identities of their spools. A start that repairs the table must find the spool
that has another collector's rows (see `end_of_log`).
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from tailrace import owned
from tailrace.store.refusal import refusal

NAME = "collector.json"


class Introduction(msgspec.Struct):
    """`identity` is that of the spool in the directory `spool`."""

    identity: str
    spool: str


def introduce(directory: Path, who: Introduction) -> None:
    """Write it into the collector's directory, unless it is there. Raise StoreError or FullError."""
    path = directory / NAME
    if read(directory) == who:
        return
    try:
        owned.write_file(path, msgspec.json.encode(who), durable=True)
    except OSError as error:
        raise refusal(error, str(path), "write who this collector is") from error


def read(directory: Path) -> Introduction | None:
    """Return what the collector of a directory wrote; None if it wrote nothing that can be read."""
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode((directory / NAME).read_bytes(), type=Introduction)
    return None
