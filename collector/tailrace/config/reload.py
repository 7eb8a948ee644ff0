"""Define when a reload of the configuration applies each changed key.

A change of a section's key that is not listed here requires a restart of the daemon. A change of a source's key that
is not listed restarts only the source, which keeps its socket, its peers and its files.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from tailrace.config import schema
from tailrace.config.keys import SOURCES, keys
from tailrace.config.schema import Config, Section, SourceConfig


class Takes(StrEnum):
    """When a changed value of a key takes effect after a reload of the configuration."""

    NOW = "at once"
    SESSIONS = "new sessions"
    SOURCE = "source starts anew"
    RESTART = "restart"


_CONNECTIONS = dict.fromkeys(("record_max", "garbage_max", "pending_max"), Takes.SESSIONS) | dict.fromkeys(
    ("connections_max", "connections_per_peer_max", "idle_timeout", "record_timeout"), Takes.NOW
)  # fmt: skip

_TAKES: dict[type[Section], dict[str, Takes]] = {
    schema.StoreConfig: dict.fromkeys(
        ("commit_interval", "commit_rows", "commit_bytes", "compact_size", "retention_age", "retention_size"),
        Takes.NOW,
    ),
    schema.SpoolConfig: dict.fromkeys(("sync_interval", "checkpoint_interval", "checkpoint_bytes"), Takes.NOW),
    schema.QuarantineConfig: dict.fromkeys(keys(schema.QuarantineConfig), Takes.NOW),
    schema.LedgerConfig: dict.fromkeys(keys(schema.LedgerConfig), Takes.SESSIONS),
    schema.JobConfig: dict.fromkeys(keys(schema.JobConfig), Takes.SESSIONS),
    schema.MetricsConfig: dict.fromkeys(keys(schema.MetricsConfig), Takes.NOW),
    schema.LogConfig: dict.fromkeys(keys(schema.LogConfig), Takes.NOW),
    schema.TcpConfig: _CONNECTIONS,
    schema.UnixConfig: _CONNECTIONS,
    schema.TailConfig: dict.fromkeys(("record_max", "pending_max"), Takes.SESSIONS) | dict.fromkeys(
        ("poll_interval", "idle_interval", "files_max", "inflating_max", "hole_timeout", "rest_time"),
        Takes.NOW,
    ),
}  # fmt: skip


class Change(NamedTuple):
    """A configuration key that gets a new value by a reload, and when the new value takes effect."""

    section: str
    key: str
    takes: Takes


def takes(struct: type[Section], key: str) -> Takes:
    """Return when the new value of a key takes effect after a reload. `struct` is the class that defines the key."""
    otherwise = Takes.SOURCE if struct in SOURCES.values() else Takes.RESTART
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
