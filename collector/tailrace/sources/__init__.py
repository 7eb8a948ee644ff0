"""Sources turn sockets and files into chunks of bytes.

Decoding is left to the ingest. Two sources ask the format: `udp` whether a datagram of an unknown
peer is readable, and `tail` which files belong to a trace.
"""

from __future__ import annotations
