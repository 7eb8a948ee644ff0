"""The running daemon: sources, spool, ingest and table put together."""

from __future__ import annotations
