"""Compute a frame of the timeline row by row, from the public views and from the stored rows."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from tailrace.export.drawn_rows import DrawnRows
from tailrace.export.lost import lost
from tailrace.export.output import RowCount
from tailrace.export.selected import Selected
from tailrace.query.engine import Engine
from tailrace.query.patience import Patience
from tailrace.reading.question import Filters
from tailrace.timeline import LATEST
from tests.query import test_counters as counters

_SPANS = """
SELECT source, session, stream, substream, name, depth, start, "end", open, time, aligned, "offset" FROM spans
"""
_EVENTS = """
SELECT source, session, stream, substream, kind, name, start, "end", time, aligned, "offset", attributes
FROM events WHERE kind IN ('instant', 'annotation', 'counter', 'end')
  AND NOT (kind = 'end' AND coalesce(contains(attributes, 'begin_forgotten'), false))
"""


class Naive:
    """All rows of a store. Any window can be requested."""

    def __init__(self, store, stored):
        engine = Engine(store)
        self.times = {
            (r["source"], r["session"], r["offset"]): r["time"]
            for r in stored
            if r["kind"] not in ("gap", "session")
        }
        selected = Selected(engine, Filters(), Patience(engine, None))
        self.timeline = DrawnRows(selected, RowCount(None))
        self.sessions = self.timeline.sessions
        self.lost = list(lost(self.timeline))
        self.gaps = list(engine.rows("SELECT source, session, stream, reason, remaining FROM gaps"))
        self.spans = list(engine.rows(_SPANS))
        self.events = list(engine.rows(_EVENTS))

    def frame(self, window, pixels, open_max=64):
        """Return spans, instants, counters and gaps as lists of tuples.

        For several spans together, return all possible names.
        """
        asked = _Asked(self, window, pixels)
        return asked.spans(open_max), asked.instants(), asked.counters(), asked.gaps()


def power(width):
    """Return the logarithm of the largest power of two that is at most a width."""
    log = -200
    while Fraction(2) ** (log + 1) <= width:
        log += 1
    return log


def first_at(at, time):
    """Return the first tick whose time is at least the given one."""
    low, high = -(2**70), 2**70
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if at(middle) >= time else (middle, high)
    return high


class _Asked:
    def __init__(self, naive, window, pixels):
        self.naive = naive
        self.window = window
        self.log = max(power(Fraction(window.end - window.begin, pixels)), 0)

    def _scale(self, session):
        """Return the number of ticks that a short span does not reach, as a logarithm, and the buckets of ticks in the
        window.
        """
        rate = session.ticks.rate or 1e9
        short = max(self.log + power(Fraction(rate) / 10**9), 0)
        if session.tied and session.epoch is None:
            return short, range(0)

        def at(tick):
            if session.epoch is not None:
                return session.epoch + session.ticks.ns(tick)
            return session.ticks.ns(tick + session.clock_offset) + session.shift

        first, behind = (first_at(at, time) for time in self.window)
        return short, range(
            first >> short, ((behind - 1) >> short) + 1
        ) if behind > first else range(0)

    def _bucket(self, key, session, tick, offset):
        """Return the bucket of a row, or None outside of the window, and where the bucket begins and ends."""
        short, buckets = self._scale(session)
        time = self.naive.times[*key[:2], offset]
        if time is not None:
            width = 1 << self.log
            first, last = self.window.begin // width, (self.window.end - 1) // width
            number = time // width
            if first <= number <= last:
                return (True, number), max(number * width, 0), min((number + 1) * width, LATEST)
            return None
        number = tick >> short
        if number in buckets:
            edges = [session.place_tick(each << short) for each in (number, number + 1)]
            low = edges[0] if edges[0] is not None else 0
            return (False, number), low, edges[1]
        return None

    def spans(self, open_max):
        drawn, sums = [], {}
        opened = {}
        deepest = {}
        for *of, name, depth, start, end, is_open, time, aligned, offset in self.naive.spans:
            key = tuple(of)
            if depth is not None:
                deepest[key] = max(deepest.get(key, 0), depth + 1)
            session = self.naive.sessions[key[:2]]
            begin = session.place(time, aligned) if start is not None else None
            if begin is None:
                continue
            shown = "(span without a name)" if name is None else name
            finish = None if is_open else session.end(begin, start, end)
            length = None if is_open else max(end - start, 0)
            short, _ = self._scale(session)
            if length is not None and length < 1 << short:
                if (found := self._bucket(key, session, start, offset)) is not None:
                    sums.setdefault((key, depth, found), []).append(
                        (length, shown, begin, finish, offset)
                    )
            elif is_open:
                opened.setdefault(key, []).append((depth, begin, shown, offset))
            elif begin < self.window.end and (
                begin >= self.window.begin or finish > self.window.begin
            ):
                drawn.append(
                    (key, depth, begin, finish, {shown}, 1, finish - begin, offset, False, False)
                )
        for key, rows in opened.items():
            drawn += [(key, *row) for row in self._open(rows, open_max)]
        for (key, depth, (_, low, high)), rows in sums.items():
            session = self.naive.sessions[key[:2]]
            busy = session.ticks.ns(sum(row[0] for row in rows))
            if len(rows) == 1:
                ((_, name, begin, finish, offset),) = rows
                drawn.append((key, depth, begin, finish, {name}, 1, busy, offset, False, True))
            else:
                longest = max(row[0] for row in rows)
                names = {row[1] for row in rows if row[0] == longest}
                drawn.append((key, depth, low, high, names, len(rows), busy, None, False, True))
        return self._stacked(drawn, deepest)

    def _open(self, rows, open_max):
        """Return the open spans of a lane that begin before the window's end.

        If they are many, group them by the buckets of their begins.
        """
        groups = {}
        for number, (depth, begin, name, offset) in enumerate(rows):
            bucket = max(begin, self.window.begin - 1) >> self.log
            group = number if len(rows) <= open_max else (depth, bucket)
            groups.setdefault(group, []).append((begin, offset, name, depth))
        for group in groups.values():
            first = min(begin for begin, *_ in group)
            if first < self.window.end:
                names = {name for begin, _, name, _ in group if begin == first}
                offset = group[0][1] if len(group) == 1 else None
                yield group[0][3], first, None, names, len(group), 0, offset, True, False

    def gaps(self):
        """Return the visible gaps.

        Gaps of a stream that begin in the same bucket and end in the same bucket are together.
        """
        groups = {}
        placed = Counter()
        for each in self.naive.lost:
            stream = each.session.source, each.session.session, each.stream
            told = each.members["reason"], each.members.get("remaining")
            placed[*stream, *told] += 1
            if each.begin < self.window.end and each.end >= self.window.begin:
                begins = max(each.begin, self.window.begin - 1) >> self.log
                ends = min(each.end, self.window.end) >> self.log
                groups.setdefault((stream, begins, ends), []).append((*told, each.begin, each.end))
        for (*stream, reason, remaining), number in (Counter(self.naive.gaps) - placed).items():
            nowhere = [(reason, remaining, None, None)] * number
            groups.setdefault((tuple(stream), None, None), []).extend(nowhere)
        for (stream, *_), gaps in groups.items():
            reasons, amounts, begins, ends = zip(*gaps, strict=True)
            known = [each for each in amounts if each is not None]
            yield (
                stream, len(gaps), None if begins[0] is None else min(begins), None if ends[0] is None else max(ends),
                sum(known) if known else None, len(gaps) - len(known), reasons[0] if len(set(reasons)) == 1 else None,
            )  # fmt: skip

    def _stacked(self, drawn, deepest):
        answer = []
        longs = {}
        order = sorted(
            drawn,
            key=lambda d: (
                str(d[0]),
                d[2],
                -(LATEST + 1 if d[3] is None else d[3]),
                -1 if d[7] is None else d[7],
            ),
        )
        for key, recorded, begin, end, names, count, busy, offset, is_open, short in order:
            depth = recorded
            if depth is None:
                finish = LATEST if end is None else end
                before = longs.setdefault(key, [])
                if short:
                    row = 1 + max((r for r, _, e in before if e > begin), default=-1)
                else:
                    row = 1 + max(
                        (r for r, _, e in before if e > begin and e >= finish), default=-1
                    )
                    while any(r == row and e > begin for r, _, e in before):
                        row += 1
                    before.append((row, begin, finish))
                depth = row + deepest.get(key, 0)
            answer.append((key, depth, begin, end, frozenset(names), count, busy, offset, is_open))
        return answer

    def _placed_events(self):
        for *of, kind, name, start, end, time, aligned, offset, attributes in self.naive.events:
            key = tuple(of)
            session = self.naive.sessions[key[:2]]
            begin = session.place(time, aligned)
            tick = start
            if kind == "end" and begin is None and end is not None:
                begin, tick = session.place_tick(end), end
            if begin is None or (found := self._bucket(key, session, tick, offset)) is None:
                continue
            shown = "(span without a name)" if name is None else name
            numbers = counters.numbers(shown, attributes) if kind == "counter" else []
            values = {called: value for called, value in numbers if value is not None}
            yield key, shown, kind, values, found, begin, offset

    def instants(self):
        sums = {}
        for key, name, kind, values, found, begin, offset in self._placed_events():
            if not values:
                sums.setdefault((key, found), []).append((begin, kind, name, offset))
        return [
            (
                key,
                *(
                    (rows[0][0], 1, *rows[0][1:])
                    if len(rows) == 1
                    else (found[1], len(rows), None, None, None)
                ),
            )
            for (key, found), rows in sums.items()
        ]

    def counters(self):
        sums = {}
        for key, _, _, values, found, begin, offset in self._placed_events():
            for name, value in values.items():
                spot = self.naive.times[*key[:2], offset]
                order = begin if spot is None else spot
                sums.setdefault((key, found, name), []).append((order, offset, float(value), begin))
        return [
            (key, name, rows[0][3] if len(rows) == 1 else found[1], len(rows),
             min(r[2] for r in rows), max(r[2] for r in rows), max(rows)[2])
            for (key, found, name), rows in sums.items()
        ]  # fmt: skip
