"""Serve the page and the HTTP API of `tailrace view` from one store, or from several to compare.

An endpoint is a function of a snapshot and a question (`questions`) that returns an answer (`wire`); `application`
lists them all. Everything around them is the same for each: `door` decides who may ask,
`leases` which snapshot is asked, and `answers` leads a request to its answer.
"""

from __future__ import annotations
