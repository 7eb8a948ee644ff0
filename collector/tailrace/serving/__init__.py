"""Serve the admin endpoint of the daemon over HTTP."""

from __future__ import annotations
