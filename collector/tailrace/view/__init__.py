"""Serve the page and the HTTP API of `tailrace view` for one store, or for several stores to compare.

An endpoint (`endpoints`) is a function that gets a lease of snapshots (`leases`) and a question (`questions`), and
returns an answer (`wire`). `application` lists all endpoints. The work that is the same for all endpoints is in other
modules: `door` authorizes requests, `leases` selects the snapshot, and `answers` runs the endpoint and encodes its
answer. `streaming` sends answers that arrive piece by piece.
"""

from __future__ import annotations
