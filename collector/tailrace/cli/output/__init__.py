"""Print the results of commands: tables, single rows, ledgers, and screens that are updated."""

from __future__ import annotations
