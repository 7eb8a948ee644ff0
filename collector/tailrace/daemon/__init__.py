"""The running daemon, which combines sources, spool, ingest and table."""

from __future__ import annotations
