"""Serve the page and the HTTP API of `tailrace view` from one store, or from several to compare.

An endpoint is a function of a snapshot and a question (`questions`) that returns an answer (`wire`); `endpoints`
lists them all. Everything around them is the same for each: `opening` who may ask, `desk` which snapshot is
asked and for how long, `asking` the way from a request to an answer.
"""

from __future__ import annotations
