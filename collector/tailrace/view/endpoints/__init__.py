"""Answer the requests of the HTTP API.

Each endpoint is a function that gets the snapshots of the stores for one request (a lease) and the request's parameters
(a question), and returns an answer.
"""

from __future__ import annotations
