"""All endpoints of the API that answer a question once. `live` and `export` answer piece by piece."""

from __future__ import annotations

from typing import Any

from tailrace.view import wire
from tailrace.view.answering import CSV
from tailrace.view.asking import Endpoint
from tailrace.view.compare import compare
from tailrace.view.gaps import gaps, next_gap
from tailrace.view.notes import add, notes, remove
from tailrace.view.overview import overview, store
from tailrace.view.questions import (
    NewNote,
    OfComparison,
    OfDurations,
    OfFlame,
    OfFrame,
    OfGaps,
    OfLanes,
    OfNextGap,
    OfNothing,
    OfRow,
    OfSearch,
    OfSessions,
    OfStatement,
    OfStatistics,
    OfStreams,
    OldNote,
)
from tailrace.view.rows import row
from tailrace.view.searching import search
from tailrace.view.sql import sql
from tailrace.view.statistics import durations, flame, statistics
from tailrace.view.streams import sessions, streams
from tailrace.view.timeline import frame, lanes

PREFIX = "/api/v1"

ENDPOINTS: tuple[Endpoint[Any], ...] = (
    Endpoint("GET", "store", "The store, and what can be asked of it", OfNothing, wire.StoreAnswer, store, kept=False),
    Endpoint("GET", "overview", "The sources, and what is missing", OfNothing, wire.OverviewAnswer, overview),
    Endpoint("GET", "streams", "The streams, a page at a time", OfStreams, wire.Streams, streams),
    Endpoint("GET", "sessions", "The sessions: producers, clocks, times", OfSessions, wire.Sessions, sessions),
    Endpoint("GET", "lanes", "The lanes of the timeline", OfLanes, wire.Lanes, lanes),
    Endpoint("GET", "frame", "The contents of a window of the timeline", OfFrame, wire.FrameAnswer, frame),
    Endpoint("GET", "row", "Every column at a place, and the spans around and inside it", OfRow, wire.RowsAnswer, row),
    Endpoint("GET", "search", "The next events whose name contains a text", OfSearch, wire.FoundEvents, search),
    Endpoint("GET", "gaps", "The gaps, and between which times they lie", OfGaps, wire.Gaps, gaps),
    Endpoint("GET", "gaps/next", "The next gap after a time, or before it", OfNextGap, wire.Gaps, next_gap),
    Endpoint(
        "GET", "statistics", "How many spans there are, and how long they took",
        OfStatistics, wire.Statistics, statistics, media_types=(CSV,),
    ),
    Endpoint("GET", "flame", "Where the time goes, by names inside names", OfFlame, wire.Flame, flame),
    Endpoint("GET", "durations", "When spans began, and how long they took", OfDurations, wire.HeatMapAnswer, durations),
    Endpoint(
        "GET", "compare", "Two runs: what grew, what is new, what is gone",
        OfComparison, wire.Comparison, compare, media_types=(CSV,),
    ),
    Endpoint(
        "POST", "sql", "The answer to a statement that only reads",
        OfStatement, wire.SqlAnswer, sql, kept=False, media_types=(CSV,),
    ),
    Endpoint("GET", "notes", "The notes about ranges of time", OfNothing, wire.NoteList, notes, kept=False),
    Endpoint("POST", "notes", "Keep a note; the answer lists all", NewNote, wire.NoteList, add, kept=False),
    Endpoint("DELETE", "notes", "Remove a note; the answer lists the others", OldNote, wire.NoteList, remove, kept=False),
)  # fmt: skip
