"""Print the results of commands: tables, single rows, final ledgers, and screens that are updated."""

from __future__ import annotations
