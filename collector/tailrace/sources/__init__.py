"""Receive bytes from sockets and files and pass them on as chunks. The ingest decodes the chunks.

Only two types of sources know the format of their data: `udp` checks whether a datagram of an unknown peer is readable,
and `tail` finds the files that belong to a trace.
"""

from __future__ import annotations
