"""Receive bytes from sockets and files and pass them on as chunks, which the ingest decodes."""

from __future__ import annotations
