"""Add up pieces by buckets: what `events` says in SQL of how rows add up, for columns in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailrace.rollups.pieces import Pieces
from tailrace.rollups.places import Longs, Truths

MOST = 2**63 - 1
_NEARLY = 2.0**62


def added(pieces: Pieces, *keys: NDArray[Any]) -> tuple[Pieces, Longs]:
    """Return the sums of spans or of instants that agree in all keys, in the order of the keys, and the place of one of
    each sum among the pieces.

    The label is that of one of the longest; `spot`, `start`, `offset` and `kind` are those of a single row."""
    key = _packed(keys)
    order = np.argsort(key) if len(keys) == 1 or key.ndim == 1 else np.lexsort(key)
    first = _firsts(key[..., order])
    sizes = np.diff(np.append(first, len(order)))
    longest = pieces.longest[order]
    greatest = np.repeat(np.maximum.reduceat(longest, first), sizes) if len(first) else longest
    among = np.flatnonzero(longest == greatest)
    group = np.repeat(np.arange(len(first)), sizes)[among]
    chosen = order[among[_changes(group)]]
    sums = pieces.take(chosen)._replace(
        events=_sums(pieces.events[order], first), busy=_sums(pieces.busy[order], first)
    )
    return sums, chosen


def latest(pieces: Pieces, *keys: NDArray[Any]) -> tuple[Pieces, Longs]:
    """Return the sums of a counter's values that agree in all keys, as `added` does. `spot`, `offset` and `latest` are
    those of the latest."""
    key = _packed(keys)
    order = np.lexsort((pieces.offset, pieces.spot, *(key if key.ndim > 1 else (key,))))
    first = _firsts(key[..., order])
    if not len(first):
        return pieces, order
    chosen = order[np.append(first[1:], len(order)) - 1]
    sums = pieces.take(chosen)._replace(
        events=_sums(pieces.events[order], first),
        least=np.minimum.reduceat(pieces.least[order], first),
        most=np.maximum.reduceat(pieces.most[order], first),
    )
    return sums, chosen


def _packed(keys: tuple[NDArray[Any], ...]) -> Longs:
    """Return numbers that have the order of the keys.

    The result is one number a row if 64 bits hold all keys; else it has a row for each key, the last key first, as
    `numpy.lexsort` takes them."""
    wide = [key.astype(np.int64) for key in keys]
    if not len(wide[0]):
        return wide[0]
    lows = [int(key.min()) for key in wide]
    sizes = [int(key.max()) - low + 1 for key, low in zip(wide, lows, strict=True)]
    room = 1
    for size in sizes:
        room *= size
    if room >= MOST:
        return np.stack(wide[::-1])
    packed = np.zeros(len(wide[0]), np.int64)
    for key, low, size in zip(wide, lows, sizes, strict=True):
        packed *= size
        packed += key - low
    return packed


def _firsts(ordered: Longs) -> Longs:
    """Return the places in sorted keys where the key differs from the one before."""
    if ordered.ndim == 1:
        return np.flatnonzero(_changes(ordered))
    changes = _changes(ordered[0])
    for row in ordered[1:]:
        changes |= _changes(row)
    return np.flatnonzero(changes)


def _changes(ordered: NDArray[Any]) -> Truths:
    """Return which values differ from the one before; the first one does."""
    found = np.ones(len(ordered), np.bool_)
    found[1:] = ordered[1:] != ordered[:-1]
    return found


def _sums(values: Longs, first: Longs) -> Longs:
    """Return the sums of groups, at most `MOST`."""
    if not len(first):
        return values[:0]
    found: Longs = np.add.reduceat(values, first)
    about = np.add.reduceat(values.astype(np.float64), first)
    for group in np.flatnonzero(about > _NEARLY).tolist():
        end = first[group + 1] if group + 1 < len(first) else len(values)
        found[group] = min(sum(values[first[group] : end].tolist()), MOST)
    return found
