"""How a run ended, for whoever reports it. Ranks of a job import this, and nothing of a collector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tailrace.run.certificate import Certificate

NOT_TRACED = "the program is not traced"
CUT_OFF = "tracing failed, so that there is no certificate"

Warn = Callable[[str, Exception], None]
"""Receives what went wrong with tracing, and the error behind it."""


class RunDone(NamedTuple):
    """The result of a run: the program's exit status and, unless tracing failed, the certificate.

    With `others`, other ranks of the node still run, the last of which gets the node's certificate. `refused` counts the
    connections and datagrams of other users by cause; the certificate includes none of their events."""

    status: int
    certificate: Certificate | None = None
    others: bool = False
    refused: Mapping[str, int] = {}
