"""Generate traffic, and give the tour of `tailrace demo`.

The generators (a module for each format) are pure and return the same traffic for the same seed, so tests
use them too. The tour talks to Tailrace as any user would: by processes, sockets and HTTP.
"""

from __future__ import annotations
