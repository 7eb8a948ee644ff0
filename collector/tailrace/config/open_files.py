"""Compute how many descriptors a configuration may need."""

from __future__ import annotations

from tailrace.config.schema import (
    Config,
    SourceConfig,
    TailConfig,
    TcpConfig,
    UdpConfig,
    UnixConfig,
)

OWN = 128
"""Descriptors that the process needs for itself: for the spool, the table, clients of the admin endpoint
and the upkeep process."""


def needed(config: Config) -> int:
    """Return the sum of what connections_max and descriptors_max allow, and `OWN`."""
    return OWN + sum(map(_of_source, config.sources.values()))


def too_few(config: Config, limit: int) -> str | None:
    """Return a sentence if a limit (negative means none) is lower than what may be needed."""
    wanted = needed(config)
    if limit < 0 or limit >= wanted:
        return None
    return (
        f"{limit:,} descriptors may be open at a time; connections_max, descriptors_max and the collector's own"
        f" descriptors add up to {wanted:,}"
    )


def _of_source(source: SourceConfig) -> int:
    """Return the descriptors of a source. All UDP peers share one socket."""
    match source:
        case TcpConfig() | UnixConfig():
            return 1 + source.connections_max
        case UdpConfig():
            return 1
        case TailConfig():
            return source.descriptors_max
