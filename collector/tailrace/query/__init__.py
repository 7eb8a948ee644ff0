"""Query the table: views and SQL."""

from __future__ import annotations
