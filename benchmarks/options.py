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
    streams: tuple[int, ...] = (1, 10, 100, 1000, 5000)
    connections: tuple[int, ...] = (1, 10, 100, 1000)
    rows: tuple[int, ...] = (10_000, 100_000, 1_000_000, 10_000_000)
    """Rows that the table grows to; 100000000 takes an hour."""
    files: tuple[int, ...] = (1000, 10_000)
    """Followed files that nobody writes to."""
    commit_interval: str = "1 s"
    varieties: bool = True
    """Whether all varieties of an input, or of our client, are measured, or the first alone."""
    quick: bool = False


QUICK = Options(
    runs=3,
    events=150_000,
    seconds=2.0,
    rates=(50_000, 100_000),
    packed_rates=(10_000,),
    streams=(1, 100, 5000),
    connections=(1, 100, 1000),
    rows=(10_000, 100_000, 1_000_000),
    files=(1000,),
    quick=True,
)
