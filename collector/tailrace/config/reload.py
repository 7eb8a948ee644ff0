"""Define when a reload of the configuration applies each changed key.

A change of a section's key that is not listed here requires a restart of the daemon. A change of a source's key that
is not listed restarts only the source, which keeps its socket, its peers and its files.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from tailrace.config.keys import keys
from tailrace.config.schema import (
    Config,
    JobConfig,
    LedgerConfig,
    LogConfig,
    MetricsConfig,
    QuarantineConfig,
    Section,
    SourceConfig,
    SpoolConfig,
    StoreConfig,
    TailConfig,
    TcpConfig,
    UdpConfig,
    UnixConfig,
)


class Takes(StrEnum):
    """When a changed value of a key takes effect after a reload of the configuration."""

    NOW = "at once"
    SESSIONS = "new sessions"
    SOURCE = "source starts anew"
    RESTART = "restart"


_CONNECTIONS = {
    "record_max": Takes.SESSIONS,
    "garbage_max": Takes.SESSIONS,
    "pending_max": Takes.SESSIONS,
    "connections_max": Takes.NOW,
    "connections_per_peer_max": Takes.NOW,
    "idle_timeout": Takes.NOW,
    "record_timeout": Takes.NOW,
}

_TAKES: dict[type[Section], dict[str, Takes]] = {
    StoreConfig: dict.fromkeys(
        (
            "commit_interval",
            "commit_rows",
            "commit_bytes",
            "compact_size",
            "retention_age",
            "retention_size",
        ),
        Takes.NOW,
    ),
    SpoolConfig: dict.fromkeys(
        ("sync_interval", "checkpoint_interval", "checkpoint_bytes"), Takes.NOW
    ),
    QuarantineConfig: dict.fromkeys(keys(QuarantineConfig), Takes.NOW),
    LedgerConfig: dict.fromkeys(keys(LedgerConfig), Takes.SESSIONS),
    JobConfig: dict.fromkeys(keys(JobConfig), Takes.SESSIONS),
    MetricsConfig: dict.fromkeys(keys(MetricsConfig), Takes.NOW),
    LogConfig: dict.fromkeys(keys(LogConfig), Takes.NOW),
    UdpConfig: {},
    TcpConfig: _CONNECTIONS,
    UnixConfig: _CONNECTIONS,
    TailConfig: {
        "record_max": Takes.SESSIONS,
        "pending_max": Takes.SESSIONS,
        "poll_interval": Takes.NOW,
        "idle_interval": Takes.NOW,
        "files_max": Takes.NOW,
        "inflating_max": Takes.NOW,
        "hole_timeout": Takes.NOW,
        "rest_time": Takes.NOW,
    },
}

_SOURCES = (UdpConfig, TcpConfig, UnixConfig, TailConfig)


class Change(NamedTuple):
    """A key of a section whose value a reload changes, and when the new value takes effect."""

    section: str
    key: str
    takes: Takes


def takes(struct: type[Section], key: str) -> Takes:
    """Return when the new value of a key takes effect after a reload. `struct` is the class that defines the key."""
    otherwise = Takes.SOURCE if struct in _SOURCES else Takes.RESTART
    return _TAKES.get(struct, {}).get(key, otherwise)


def changes(old: Config, new: Config) -> Iterator[Change]:
    """Yield each key of a section whose value differs between two configurations. Leave out the keys of sources."""
    for name in keys(Config):
        if name != "sources":
            yield from _changes(name, getattr(old, name), getattr(new, name))


def starts_anew(old: SourceConfig, new: SourceConfig) -> bool:
    """Return whether a source must be restarted so that its new configuration takes effect."""
    if type(old) is not type(new):
        return True
    return any(change.takes is Takes.SOURCE for change in _changes("", old, new))


def _changes(name: str, old: Section, new: Section) -> Iterator[Change]:
    for key in keys(type(old)):
        if getattr(old, key) != getattr(new, key):
            yield Change(name, key, takes(type(old), key))
