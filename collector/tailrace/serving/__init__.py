"""The admin endpoint of the ingest process."""

from __future__ import annotations
