"""All endpoints of the API that answer a question once. `live` and `export` answer piece by piece."""

from __future__ import annotations

from typing import Any

from tailrace.view import wire
from tailrace.view.answering import CSV
from tailrace.view.asking import Endpoint
from tailrace.view.gaps import gaps
from tailrace.view.overview import overview, store
from tailrace.view.questions import (
    OfGaps,
    OfNothing,
    OfSessions,
    OfStatistics,
    OfStreams,
    Statement,
)
from tailrace.view.sql import sql
from tailrace.view.statistics import statistics
from tailrace.view.streams import sessions, streams

PREFIX = "/api/v1"

ENDPOINTS: tuple[Endpoint[Any], ...] = (
    Endpoint("GET", "store", "What the store is, and what can be asked of it", OfNothing, wire.Store, store, kept=False),
    Endpoint("GET", "overview", "What there is, and what is missing", OfNothing, wire.Overview, overview),
    Endpoint("GET", "streams", "The streams, a page at a time", OfStreams, wire.Streams, streams),
    Endpoint("GET", "sessions", "The sessions: producers, clocks, times", OfSessions, wire.Sessions, sessions),
    Endpoint("GET", "gaps", "The gaps, and between which times they lie", OfGaps, wire.Gaps, gaps),
    Endpoint(
        "GET", "statistics", "How many spans there are, and how long they took",
        OfStatistics, wire.Statistics, statistics, media_types=(CSV,),
    ),
    Endpoint(
        "POST", "sql", "The answer to a statement that only reads",
        Statement, wire.SqlAnswer, sql, kept=False, media_types=(CSV,),
    ),
)  # fmt: skip
