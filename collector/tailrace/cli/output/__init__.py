"""Print the results of commands: tables, single rows, final summaries of events, and screens that are updated."""

from __future__ import annotations
