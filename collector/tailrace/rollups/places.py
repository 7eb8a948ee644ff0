"""Ticks as nanoseconds and as times, for whole columns: what `export.clocks` does for one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tailrace.export.clocks import LATEST, Ticks

Longs = NDArray[np.int64]
Ints = NDArray[np.int32]
Floats = NDArray[np.float64]
Truths = NDArray[np.bool_]

NOWHERE = -1
"""The place of what cannot be drawn: its time is below 0 or beyond `LATEST`."""

_SAFE = 2.0**62
"""Sums of two numbers below this fit into 64 bits; floating point errs less than that."""

_SECOND = 10**9


def durations(ticks: Longs, rate: float) -> Longs:
    """Return ticks, which are not negative, as nanoseconds, rounded down; at most `LATEST`."""
    safe = ticks * (1e9 / rate) < _SAFE
    found = _vector(np.where(safe, ticks, 0), rate)
    for index in np.flatnonzero(~safe).tolist():
        found[index] = min(Ticks(rate).ns(int(ticks[index])), LATEST)
    return found


def places(ticks: Longs, offsets: Longs, zeros: Longs, rate: float) -> Longs:
    """Return the times of ticks: (tick + offset) / rate seconds behind zero; `NOWHERE` for those without a place."""
    about = np.abs(ticks.astype(np.float64)) + np.abs(offsets.astype(np.float64))
    safe = (about < _SAFE) & (about * (1e9 / rate) + np.abs(zeros.astype(np.float64)) < _SAFE)
    found = _vector(np.where(safe, ticks, 0) + np.where(safe, offsets, 0), rate)
    found += np.where(safe, zeros, 0)
    for index in np.flatnonzero(~safe).tolist():
        ns = Ticks(rate).ns(int(ticks[index]) + int(offsets[index])) + int(zeros[index])
        found[index] = ns if ns <= LATEST else NOWHERE
    placed: Longs = np.maximum(found, NOWHERE)
    return placed


def ends(begins: Longs, starts: Longs, ticks: Longs, rate: float) -> Longs:
    """Return when spans of some ticks end that start at a tick and begin at a time; at most `LATEST`."""
    about = np.abs(starts.astype(np.float64)) + ticks
    safe = (about < _SAFE) & (about * (1e9 / rate) + begins < _SAFE)
    first = np.where(safe, starts, 0)
    length = _vector(first + np.where(safe, ticks, 0), rate) - _vector(first, rate)
    found: Longs = np.where(safe, begins, 0) + np.maximum(length, 0)
    for index in np.flatnonzero(~safe).tolist():
        start, begin = int(starts[index]), int(begins[index])
        ns = Ticks(rate).ns
        length_of_one = ns(start + int(ticks[index])) - ns(start)
        found[index] = min(begin + max(length_of_one, 0), LATEST)
    return found


def _vector(ticks: Longs, rate: float) -> Longs:
    """Return safe ticks as nanoseconds."""
    if rate == _SECOND:
        return ticks.copy()
    if not rate.is_integer():
        rounded: Longs = np.rint(ticks * (1e9 / rate)).astype(np.int64)
        return rounded
    if rate >= _SAFE / _SECOND:
        return np.array([Ticks(rate).ns(tick) for tick in ticks.tolist()], np.int64)
    whole, rest = np.divmod(ticks, int(rate))
    found: Longs = whole * _SECOND + rest * _SECOND // int(rate)
    return found
