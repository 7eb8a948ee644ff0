"""Serve the page and the HTTP API of `tailrace view` from one store, or from several to compare.

An endpoint (`endpoints`) is a function of a lease of snapshots and a question (`questions`) that returns an answer
(`wire`); `application` lists them all. Everything around them is the same for each: `door` decides who may ask,
`leases` which snapshot is asked, and `answers` leads a request to its answer. `streaming` sends what comes piece by piece.
"""

from __future__ import annotations
