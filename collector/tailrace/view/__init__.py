"""Serve the page and the HTTP API of `tailrace view` for one store, or for several stores to compare.

An endpoint (`endpoints`) is a function that gets a lease of snapshots (`leases`) and the parameters of a request
(`questions`), and returns an answer (`wire`). `application` lists all endpoints. `door` authorizes requests, `answers`
runs the endpoint and encodes its answer, and `streaming` sends long answers in parts.
"""

from __future__ import annotations
