"""What people ask of the table: views and SQL."""

from __future__ import annotations
