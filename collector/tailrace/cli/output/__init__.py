"""Print the results of commands: tables, single rows, sums of events at the end, and screens that are updated."""

from __future__ import annotations
