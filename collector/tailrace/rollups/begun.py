"""Spans that have the row of a begin and no row of a whole span: open, or ended when the begin was forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from numpy.typing import NDArray

from tailrace.rollups.events import BY_NAME, SPAN
from tailrace.rollups.held import Held
from tailrace.rollups.pieces import NONE, FrameTexts, Pieces

BEGUN = f"""
SELECT b.source, b.session, b.stream, b.substream, b.time IS NOT NULL AS timed, b.depth,
  coalesce(b.time, b.start) AS spot, b.start,
  least(greatest(coalesce(e."end", b.start)::HUGEINT - b.start, 0), 9223372036854775807)::BIGINT AS longest,
  CASE WHEN b.name IS NOT NULL THEN {BY_NAME.format("b.name")}
    ELSE concat('?', b.id, ' ', part.asked_name(b.attributes)) END AS label,
  b."offset", e.id IS NULL AS open
FROM part.kept_open AS b
LEFT JOIN part.kept_ends AS e ON e.id = b.id AND e.session = b.session AND e.source = b.source
WHERE b.start IS NOT NULL
"""  # noqa: S608 - our own words


class BegunSpans:
    """These spans of one snapshot, as columns. `rows` are those of `BEGUN`."""

    def __init__(self, held: Held, rows: Sequence[tuple[Any, ...]]) -> None:
        self._lanes = np.array([held.id_of(row[:4]) for row in rows], np.int64)
        columns = list(zip(*(row[4:] for row in rows), strict=True)) or [()] * 8
        timed, depth, spot, start, longest, label, offset, is_open = columns
        self._labels = pa.array(label, pa.string())
        zeros = np.zeros(len(rows), np.int64)
        self._pieces = Pieces(
            number=zeros.astype(np.int32),
            what=np.full(len(rows), SPAN, np.int8),
            timed=np.array(timed, np.bool_),
            depth=np.array([NONE if each is None else each for each in depth], np.int32),
            edge=np.array(spot, np.int64),
            spot=np.array(spot, np.int64),
            start=np.array(start, np.int64),
            events=zeros + 1,
            busy=np.array(longest, np.int64),
            longest=np.array(longest, np.int64),
            label=zeros,
            member=zeros + NONE,
            offset=np.array(offset, np.int64),
            kind=zeros + NONE,
            least=zeros.astype(np.float64),
            most=zeros.astype(np.float64),
            latest=zeros.astype(np.float64),
            open=np.array(is_open, np.bool_),
        )

    def pieces(self, numbers: NDArray[np.int32], texts: FrameTexts) -> Pieces:
        """Return the spans of the lanes that have a number."""
        number = numbers[self._lanes]
        rows = np.flatnonzero(number != NONE)
        label = texts.numbered(rows.astype(np.int32), self._labels)
        return self._pieces.take(rows)._replace(number=number[rows], label=label)
