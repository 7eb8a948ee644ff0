"""Serve the page and the HTTP API of `tailrace view` for one store, or for several stores to compare.

An endpoint (`endpoints`) is a function of a lease of snapshots and a question (`questions`) that returns an
answer (`wire`). `application` lists all endpoints. The common parts are separate modules: `door` authorizes
requests, `leases` selects the snapshot, and `answers` runs the endpoint and encodes its answer. `streaming`
sends answers that arrive piece by piece.
"""

from __future__ import annotations
