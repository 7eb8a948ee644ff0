"""Define the sizes of benchmarks, as options of the command line."""

from __future__ import annotations

import msgspec


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes of benchmarks. The defaults are for complete measurements; `QUICK` takes only a few minutes."""

    runs: int = 5
    """Number of runs of each side. A published figure needs at least three."""
    events: int = 2_000_000
    """Number of events of an input."""
    seconds: float = 20.0
    """How long (seconds) an idle process is watched, and how long events are sent at a fixed rate."""
    rates: tuple[int, ...] = (50_000, 100_000, 150_000, 200_000)
    """Rates at which datagrams with one event each are sent (datagrams a second)."""
    packed_rates: tuple[int, ...] = (10_000, 25_000, 50_000)
    """Rates at which datagrams that fill an Ethernet frame are sent (datagrams a second)."""
    line_rates: tuple[int, ...] = (1_000, 10_000, 50_000)
    """Rates at which single lines are sent (lines a second)."""
    streams: tuple[int, ...] = (1, 10, 100, 1000, 5000)
    connections: tuple[int, ...] = (1, 10, 100, 1000)
    rows: tuple[int, ...] = (10_000, 100_000, 1_000_000, 10_000_000)
    """Numbers of rows at which a growing table is measured. 100000000 rows take an hour."""
    spans: int = 200_000_000
    """Number of spans of the store for the timeline. The default takes half an hour to make, and 6 GB."""
    zooms: int = 4
    """Number of zooms in a run over this store. Each leads to another place."""
    backlog: int = 2_000_000_000
    """Size (bytes) of the files that exist before datagrams are sent beside them."""
    backlog_rate: int = 50_000
    """Rate at which datagrams are sent beside these files (datagrams a second)."""
    stored: tuple[int, ...] = (100_000_000,)
    """Numbers of rows of the tables that are written without a daemon. 100000000 rows take some minutes and 600 MB."""
    files: tuple[int, ...] = (1000, 10_000)
    """Number of followed files that no program writes to."""
    commit_interval: str = "1 s"
    varieties: bool = True
    """Whether to measure all variants of an input, of our client, or of a stage's input.

    Otherwise only the first variant of each kind is measured.
    """
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
