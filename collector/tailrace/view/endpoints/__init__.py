"""Answer the questions of the HTTP API.

Each endpoint is a function that gets a lease of snapshots and a question, and returns an answer.
"""

from __future__ import annotations
