"""Sources receive chunks of bytes from sockets and files.

The ingest decodes the chunks. Two sources query the format: `udp` checks whether a datagram of an
unknown peer is readable, and `tail` determines the files that belong to a trace.
"""

from __future__ import annotations
