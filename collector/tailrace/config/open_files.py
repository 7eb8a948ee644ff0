"""How many descriptors a configuration may come to need."""

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
"""Descriptors that the process itself needs: for the spool, the table, clients of the admin endpoint and the
upkeep process."""


def needed(config: Config) -> int:
    """Return the sum of what connections_max and descriptors_max allow, and `OWN`."""
    return OWN + sum(map(_of_source, config.sources.values()))


def too_few(config: Config, limit: int) -> str | None:
    """Return a sentence where a limit, negative for none, cannot hold what may be needed."""
    wanted = needed(config)
    if limit < 0 or limit >= wanted:
        return None
    return (
        f"{limit:,} descriptors may be open at a time; connections_max and descriptors_max together with what"
        f" the collector needs itself come to {wanted:,}"
    )


def _of_source(source: SourceConfig) -> int:
    """All UDP peers share one socket."""
    match source:
        case TcpConfig() | UnixConfig():
            return 1 + source.connections_max
        case UdpConfig():
            return 1
        case TailConfig():
            return source.descriptors_max
