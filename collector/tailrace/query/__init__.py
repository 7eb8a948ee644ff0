"""Run SQL statements over the views of the table."""

from __future__ import annotations
