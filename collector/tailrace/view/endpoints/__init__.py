"""Answer the questions of the HTTP API. Each endpoint is a function of a lease of snapshots and a
question."""

from __future__ import annotations
