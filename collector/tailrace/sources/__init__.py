"""The outside world turned into chunks; nothing here can read a format."""

from __future__ import annotations
