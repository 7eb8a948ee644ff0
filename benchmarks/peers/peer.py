"""Define a peer as the page describes it."""

from __future__ import annotations

from typing import NamedTuple


class Peer(NamedTuple):
    """A peer on this machine. `version` is empty if it is not installed; then the command that installs it is known.

    `does` describes what the peer does with the bytes. `configuration` is a file in this directory, or empty if there
    is none.
    """

    name: str
    version: str
    install: str
    does: str
    configuration: str = ""

    @property
    def absent(self) -> str:
        """Return the command that installs the peer; an empty text if it is installed."""
        return "" if self.version else self.install
