"""The running daemon: sources, spool, ingest and table put together, one file for each loop."""

from __future__ import annotations
