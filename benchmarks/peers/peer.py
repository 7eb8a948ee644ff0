"""A peer, as the page describes it."""

from __future__ import annotations

from typing import NamedTuple


class Peer(NamedTuple):
    """A peer on this machine: its version, or "" and the command that installs it.

    `does` says what it does with the bytes, `configuration` is a file in this directory, "" for none."""

    name: str
    version: str
    install: str
    does: str
    configuration: str = ""

    @property
    def absent(self) -> str:
        """Return the command that installs it, "" if it is here."""
        return "" if self.version else self.install
