"""Answers about the store as a whole."""

from __future__ import annotations

import msgspec

from tailrace.view.wire.parts import Ns, Whole
from tailrace.view.wire.rows import Stream


class ColumnFacts(msgspec.Struct, kw_only=True):
    name: str
    type: str
    meaning: str


class ViewFacts(msgspec.Struct, kw_only=True):
    """A view that SQL may ask."""

    name: str
    meaning: str
    columns: list[ColumnFacts]


class FormatFacts(msgspec.Struct, kw_only=True):
    """A format of `export`."""

    name: str
    meaning: str


class StoreAnswer(msgspec.Struct, kw_only=True):
    """The store, and what there is to ask for. `stores` has a number for each store on the command line."""

    version: int
    tailrace: str
    root: str
    stores: list[str]
    certified: list[list[str]]
    """The sessions of each store that `compare` takes if no session is named: those of a certificate; empty for all."""
    watched: bool
    """Whether a collector has the store now."""
    files: int
    file_bytes: int
    rows: int
    views: list[ViewFacts]
    keys: list[str]
    """The columns by which `statistics` groups; `attributes.NAME` is a key, too."""
    figures: list[str]
    """The figures that `compare` compares."""
    exports: list[FormatFacts]
    ranks: list[int]
    """The ranks, nodes and jobs of the sessions, the first ones of each."""
    nodes: list[str]
    jobs: list[str]
    notes: str | None
    """Why no note can be kept; null if notes can be kept."""
    sql_seconds: float
    sql_memory: int
    sql_rows: int


class CollectorHealth(msgspec.Struct, kw_only=True):
    """The state of a running collector, in its own words."""

    name: str
    pid: int
    state: str
    conditions: dict[str, str]
    uptime_seconds: float
    behind_seconds: float | None
    """Time since the newest heartbeat in the table was made; null without heartbeats."""
    undecoded_bytes: int
    uncommitted_bytes: int


class Rate(msgspec.Struct, kw_only=True):
    """Events a second of a source: one figure for each of `seconds`, the oldest first."""

    source: str
    seconds: list[float]
    events: list[float]


class News(msgspec.Struct, kw_only=True):
    """One message of `live`.

    `number` counts them. `collectors` are those that run and answer; `unasked` says which others give no answer,
    and why."""

    number: int
    version: int
    rows: int
    collectors: list[CollectorHealth]
    unasked: str
    rates: list[Rate]


class SourceFacts(msgspec.Struct, kw_only=True):
    source: str
    format: str
    sessions: int
    open_sessions: int
    streams: int
    events: int
    missing: int
    unknown: bool
    last_time: Ns | None
    """The latest start of an event; null where no clock is tied to wall time."""


class MissingFacts(msgspec.Struct, kw_only=True):
    """The events that a source lacks for one reason. `missing` counts events, `unknown` gaps of unknown size."""

    source: str
    reason: str
    missing: int
    unknown: int
    streams: int


class OverviewAnswer(msgspec.Struct, kw_only=True):
    """The sources and what they lack. `worst` lists the streams from which most events are missing."""

    version: int
    whole: Whole
    missing: list[MissingFacts]
    worst: list[Stream]
    sources: list[SourceFacts]
