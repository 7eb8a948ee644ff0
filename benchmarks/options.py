"""Sizes of benchmarks, as options of the command line."""

from __future__ import annotations

import msgspec


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How much is measured. The defaults are the whole form; `QUICK` is what takes a few minutes."""

    runs: int = 5
    """Runs of each side, at least three for a figure that is published."""
    events: int = 2_000_000
    """Events of an input."""
    seconds: float = 20.0
    """How long what is idle, and what is sent at a rate, is watched."""
    rates: tuple[int, ...] = (50_000, 100_000, 150_000, 200_000)
    """Datagrams a second, one event each."""
    packed_rates: tuple[int, ...] = (10_000, 25_000, 50_000)
    """Datagrams a second, as full as an Ethernet frame."""
    line_rates: tuple[int, ...] = (1_000, 10_000, 50_000)
    """Lines a second, each sent alone."""
    streams: tuple[int, ...] = (1, 10, 100, 1000, 5000)
    connections: tuple[int, ...] = (1, 10, 100, 1000)
    rows: tuple[int, ...] = (10_000, 100_000, 1_000_000, 10_000_000)
    """Rows that the table grows to; 100000000 takes an hour."""
    spans: int = 200_000_000
    """Spans of the store that the timeline shows; the whole form takes half an hour to make, and 6 GB."""
    zooms: int = 4
    """Zooms of a run over that store, each to another place."""
    backlog: int = 2_000_000_000
    """Bytes of files that are there when datagrams are sent beside them."""
    backlog_rate: int = 50_000
    """Datagrams a second beside them."""
    stored: tuple[int, ...] = (100_000_000,)
    """Rows of tables that are written without a daemon; 100000000 take some minutes and 600 MB."""
    files: tuple[int, ...] = (1000, 10_000)
    """Followed files that nobody writes to."""
    commit_interval: str = "1 s"
    varieties: bool = True
    """Whether all varieties of an input, of our client, or of a stage's input are measured, or the first of each kind alone."""
    quick: bool = False


QUICK = Options(
    runs=3,
    events=150_000,
    seconds=2.0,
    rates=(50_000, 100_000),
    packed_rates=(10_000,),
    line_rates=(1_000, 10_000),
    streams=(1, 100, 5000),
    connections=(1, 100, 1000),
    rows=(10_000, 100_000, 1_000_000),
    spans=2_000_000,
    backlog=300_000_000,
    backlog_rate=25_000,
    stored=(2_000_000,),
    files=(1000,),
    quick=True,
)
