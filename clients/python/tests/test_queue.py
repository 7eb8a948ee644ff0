from __future__ import annotations

import random
from collections import Counter
from math import inf

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tailrace_client import _wire
from tailrace_client._chunk import UNNUMBERED, Chunk
from tailrace_client._queue import _DOUBTFUL_MAX, _SPANS_MAX, Queue
from tailrace_client._session import Answer, Range


def chunk(first, count, stream=1, size=None):
    """Return a chunk with events of a stream. Each byte of the data is the number of an event."""
    data = bytes((first + n) % 256 for n in range(count)) * (size or 1)
    return Chunk(data, stream, first, first + count)


class Course(RuleBasedStateMachine):
    """A random course of a queue between a recorder and a peer that gets whole chunks, over a connection that may
    break."""

    def __init__(self):
        super().__init__()
        self.released = 0
        self.queue = Queue(10**6, self.release)
        self.recorded = 0
        self.put_bytes = 0
        self.turn = 0
        self.connection = []
        """The bytes of this connection that the kernel has accepted."""
        self.arrived = set()
        self.given = []

    def release(self, size):
        self.released += size

    @rule(counts=st.lists(st.integers(1, 5), min_size=1, max_size=3))
    def record(self, counts):
        for count in counts:
            self.queue.put([chunk(self.recorded, count)])
            self.recorded += count
            self.put_bytes += count

    @rule(size=st.integers(1, 12), lacks=st.integers(0, 3))
    def send(self, size, lacks):
        """Let the kernel accept the offered bytes, except the last `lacks`."""
        pieces = b"".join(self.queue.pieces(size))
        taken = max(0, len(pieces) - lacks)
        self.connection += pieces[:taken]
        self.queue.through(taken, self.turn, 0.0)

    @rule(lost=st.integers(0, 12))
    def breaks(self, lost):
        """Let all sent bytes arrive, except the last `lost`, and begin a new connection."""
        self.arrived |= set(self.connection[: max(0, len(self.connection) - lost)])
        self.connection = []
        self.queue.broken()
        self.turn += 1
        self.queue.settle(self.answer())

    @rule()
    def answered(self):
        self.arrived |= set(self.connection)
        self.given.append(self.answer())
        self.queue.settle(self.given[-1])

    @rule(data=st.data())
    def answered_once_more(self, data):
        """Let an earlier answer arrive late, or a second time."""
        if self.given:
            self.queue.settle(data.draw(st.sampled_from(self.given)))

    def answer(self):
        following = max(self.arrived, default=-1) + 1
        holes = [Range(1, n, n + 1) for n in range(following) if n not in self.arrived]
        return Answer(self.turn, {1: following}, {1: holes})

    @invariant()
    def what_has_not_arrived_is_still_there(self):
        """This is not checked if more than 256 events were recorded, because their bytes are not unique."""
        if self.recorded > 256:
            return
        queue = self.queue
        waiting = set()
        for items in (queue._under_way, queue._again, queue._new, queue._kept):
            for item in items:
                waiting |= set(range(item.chunk.first, item.chunk.next))
        assert waiting | self.arrived | set(self.connection) >= set(range(self.recorded))
        assert waiting | self.arrived >= set(range(self.recorded))

    @invariant()
    def every_byte_is_kept_or_released(self):
        queue = self.queue
        held = sum(
            len(item.chunk.data)
            for items in (queue._under_way, queue._again, queue._new, queue._kept)
            for item in items
        )
        assert held + self.released == self.put_bytes
        sent = [*queue._again, *queue._kept, *(i for i in queue._under_way if i.turn >= 0)]
        assert queue.kept_bytes == sum(item.room for item in sent)
        assert queue.in_flight_bytes == sum(item.room for item in queue._kept)

    @invariant()
    def places_are_counted_in_bytes_put(self):
        """Each event is one byte long, so its number is also its position in the queue."""
        queue = self.queue
        fresh = (*queue._under_way, *queue._new)
        unsent = [item.chunk.first for item in (*fresh, *queue._again)]
        kept = [item.chunk.first for item in queue._kept]
        never = [item.chunk.first for item in fresh if item.turn < 0]
        assert queue.put_bytes == self.put_bytes
        assert queue.handed() == min([self.put_bytes, *unsent])
        assert queue.settled() == min([self.put_bytes, *unsent, *kept])
        assert queue.sent.get(1, 0) == min([self.put_bytes, *never])
        assert queue.idle == (not unsent)
        assert [c.first for c in queue.unsent()] == never
        held = [*queue.unsent(), *queue.unanswered()]
        assert sorted(c.first for c in held) == sorted([*unsent, *kept])


TestCourse = Course.TestCase
TestCourse.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


def walk(rng, steps):
    """Yield the queue after each step of a random course. Hypothesis rarely generates courses with as much data to send
    again."""
    course = Course()
    for _ in range(steps):
        what = rng.choice(["record", "send", "send", "send", "breaks", "answered", "once more"])
        if what == "record":
            course.record([rng.randint(1, 5) for _ in range(3)])
        elif what == "send":
            course.send(rng.randint(1, 12), rng.choice([0, 0, 1, 2]))
        elif what == "breaks":
            course.breaks(rng.randint(0, 12))
        elif what == "answered":
            course.answered()
        elif course.given:
            course.queue.settle(rng.choice(course.given))
        course.what_has_not_arrived_is_still_there()
        course.every_byte_is_kept_or_released()
        course.places_are_counted_in_bytes_put()
        yield course.queue


def test_courses_keep_what_they_keep_with_much_to_send_again_and_in_parts():
    met = Counter()
    for seed in range(60):
        for queue in walk(random.Random(seed), 40):
            met["again"] += len(queue._again) > 1
            met["kept"] += len(queue._kept) > 1
            met["part"] += queue._part > 0
            met["repeated, in part"] += queue._part > 0 and queue._under_way[0].turn >= 0
    assert len(met) == 4
    assert min(met.values()) > 20, met


def sent(queue, *, turn=0, size=10**6):
    """Send all data in the queue, and return the data as one text of bytes."""
    data = b""
    while pieces := queue.pieces(size):
        data += b"".join(pieces)
        queue.through(sum(map(len, pieces)), turn, 0.0)
    return data


def test_packets_come_before_what_is_sent_again_and_that_before_what_is_new():
    queue = Queue(10**6, lambda size: None)
    queue.put([chunk(0, 2), chunk(2, 2)])
    assert sent(queue) == b"\0\1\2\3"
    queue.settle(Answer(1, {}))
    queue.put([chunk(4, 2)])
    queue.packet(b"later")
    queue.first_packet(b"first")
    queue.last_packets([b"good", b"bye"])
    assert queue.pieces(10**6, only_packets=True) == [b"first", b"later"]
    assert sent(queue, turn=1) == b"firstlater\0\1\2\3\4\5goodbye"


def test_first_and_last_packets_take_the_place_of_earlier_ones():
    queue = Queue(10**6, lambda size: None)
    queue.packet(b" report ")
    for data in (b"hello", b"hello", b"again"):
        queue.first_packet(data)
    queue.last_packets([b"more", b"bye"])
    queue.put([chunk(0, 1)])
    queue.last_packets([b" the end"])
    queue.pieces(10**6)
    queue.back()
    queue.first_packet(b"once more")
    assert sent(queue) == b"once more report \0 the end"


def test_a_connection_that_breaks_within_a_chunk_begins_anew_with_that_chunk():
    queue = Queue(10**6, lambda size: None)
    queue.put([chunk(0, 3), chunk(3, 3)])
    queue.first_packet(b"hello")
    queue.pieces(100)
    queue.through(9, 0, 0.0)
    assert queue.pieces(100) == [b"\4\5"]
    queue.broken()
    assert queue.pieces(100) == [b"\3\4\5"]


def test_the_oldest_is_forgotten_where_there_is_no_room_and_what_is_new_never_is():
    released = []
    queue = Queue(1000, released.append)
    for number in range(10):
        queue.put([chunk(number, 1)])
    assert len(sent(queue)) == 10
    assert len(queue._kept) == 3  # the overhead of each chunk counts, too
    assert queue.forgotten.spans(1) == [(0, 7)]
    assert sum(released) == 7
    assert queue.settled() == 0
    assert queue.settle(Answer(0, {1: 6})) == (False, [])
    assert queue.settled() == 0
    assert queue.settle(Answer(0, {1: 10})) == (False, [])
    assert queue.settled() == queue.put_bytes
    assert queue.lost_at == inf


def test_what_is_forgotten_and_then_named_as_a_hole_is_lost():
    queue = Queue(1000, lambda size: None)
    queue.put([chunk(number, 1) for number in range(10)])
    assert len(sent(queue)) == 10
    hole = {1: [Range(1, 2, 5)]}
    # The events of the hole may have been on their way when the answer was given.
    assert queue.settle(Answer(0, {1: 10}, hole)) == (False, [])
    assert queue.settled() == 0
    assert queue.settle(Answer(1, {1: 10}, hole)) == (True, [Range(1, 2, 5)])
    assert queue.settled() == queue.put_bytes
    assert queue.lost_at == 0


def test_what_is_forgotten_and_unknown_to_the_collector_is_lost():
    queue = Queue(100, lambda size: None)
    queue.put([chunk(0, 5)])
    sent(queue)
    assert queue.settle(Answer(1, {2: 5})) == (False, [])
    assert queue.settle(Answer(1, {1: 3})) == (True, [Range(1, 3, 5)])
    queue.put([chunk(5, 5)])
    sent(queue)
    assert queue.lose() == [Range(1, 5, 10)]
    assert not queue.unsettled


def test_an_answer_that_lies_behind_changes_nothing():
    queue = Queue(10**6, lambda size: None)
    queue.put([chunk(0, 50), chunk(50, 50)])
    sent(queue)
    assert queue.settle(Answer(0, {1: 100}, {1: [Range(1, 0, 50)]}))[0]
    assert queue.settle(Answer(0, {1: 0})) == (False, [])
    assert sent(queue) == bytes(range(50))
    assert queue.settle(Answer(0, {1: 0})) == (False, [])
    assert queue.settled() == 0
    queue.settle(Answer(0, {1: 100}))
    assert queue.settled() == queue.put_bytes


def test_what_cannot_be_sent_again_is_known():
    queue = Queue(10**6, lambda size: None)
    queue.put([chunk(3, 2), chunk(8, 2)])
    sent(queue)
    holes = {1: [Range(1, 0, 4), Range(1, 6, 7), Range(1, 9, 12)], 2: [Range(2, 0, 1)]}
    discarded = [Range(1, 0, 3), Range(1, 6, 7), Range(1, 10, 12), Range(2, 0, 1)]
    assert queue.unreachable(Answer(0, {1: 12, 2: 1}, holes)) == (discarded, [])


def test_what_another_collector_has_acknowledged_is_not_called_discarded():
    """The first collector has acknowledged 0 to 4, 6 and 7. The second collector lacks all events that it was not
    sent."""
    queue = Queue(10**6, lambda size: None)
    queue.put([chunk(0, 2), chunk(2, 3), chunk(6, 2), chunk(8, 2)])
    sent(queue)
    queue.settle(Answer(0, {1: 5}))
    queue.settle(Answer(0, {1: 10}, {1: [Range(1, 8, 10)]}))
    lacking = Answer(0, {1: 10}, {1: [Range(1, 0, 10)]})
    assert queue.unreachable(lacking) == ([Range(1, 5, 6)], [Range(1, 0, 5), Range(1, 6, 8)])


def test_events_that_the_answer_released_beside_given_up_ones_are_in_no_report():
    """The first collector has given up one of the events 0 to 4, and the client does not know which one. It has
    acknowledged 5 to 9."""
    queue = Queue(10**6, lambda size: None)
    queue.put([chunk(0, 2), chunk(2, 3), chunk(5, 5)])
    sent(queue)
    queue.settle(Answer(0, {1: 5}, given_up={1: 1}), given_up={1})
    queue.settle(Answer(0, {1: 10}, given_up={1: 1}))
    lacking = Answer(0, {1: 12}, {1: [Range(1, 0, 12)]})
    assert queue.unreachable(lacking) == ([Range(1, 10, 12)], [Range(1, 5, 10)])


def test_an_event_that_was_given_up_stays_doubtful_if_a_later_answer_releases_its_chunk():
    """The collector has given up event 3, and still asks for event 0."""
    queue = Queue(10**6, lambda size: None)
    queue.put([chunk(0, 10)])
    sent(queue)
    queue.settle(Answer(0, {1: 10}, {1: [Range(1, 0, 1)]}, given_up={1: 1}), given_up={1})
    sent(queue)
    queue.settle(Answer(0, {1: 10}, given_up={1: 1}))
    queue.put([chunk(10, 5)])
    sent(queue)
    queue.settle(Answer(0, {1: 15}, given_up={1: 1}))
    lacking = Answer(0, {1: 15}, {1: [Range(1, 0, 15)]})
    assert queue.unreachable(lacking) == ([], [Range(1, 10, 15)])


def test_doubtful_events_leave_few_holes():
    queue = Queue(10**6, lambda size: None)
    queue.put([chunk(2 * n, 1) for n in range(20)])
    sent(queue)
    queue.settle(Answer(0, {1: 40}, given_up={1: 1}), given_up={1})
    discarded, durable = queue.unreachable(Answer(0, {1: 40}, {1: [Range(1, 0, 40)]}))
    assert (len(discarded), durable) == (_DOUBTFUL_MAX, [])


def test_only_so_many_spans_of_what_was_acknowledged_are_remembered():
    queue = Queue(10**6, lambda size: None)
    queue.put([chunk(2 * n, 1) for n in range(_SPANS_MAX + 2)])
    sent(queue)
    end = 2 * _SPANS_MAX + 4
    queue.settle(Answer(0, {1: end}))
    discarded, durable = queue.unreachable(Answer(0, {1: end}, {1: [Range(1, 0, 5)]}))
    assert (discarded, durable) == ([Range(1, 0, 4)], [Range(1, 4, 5)])


def test_a_hole_is_repeated_once_and_again_when_a_later_turn_shows_that_that_was_lost_too():
    queue = Queue(10**6, lambda size: None)
    queue.put([chunk(0, 2), chunk(2, 2), chunk(4, 2)])
    sent(queue)
    hole = {1: [Range(1, 3, 4)]}
    assert queue.settle(Answer(0, {1: 6}, hole))[0]
    assert sent(queue) == b"\2\3"
    assert not queue.settle(Answer(0, {1: 6}, hole))[0]
    assert sent(queue) == b""
    assert not queue.settle(Answer(0, {}))[0]
    assert queue.kept_bytes
    assert queue.settle(Answer(1, {1: 6}, hole))[0]
    assert sent(queue, turn=1) == b"\2\3"
    queue.settle(Answer(1, {1: 6}))
    assert queue.kept_bytes == 0


def test_unnumbered_chunks_are_let_go_when_they_are_sent_and_come_again_when_they_are_not():
    released = []
    queue = Queue(10**6, released.append)
    queue.put([Chunk(b"one\n", UNNUMBERED, 0, 0), Chunk(b"two\n", UNNUMBERED, 0, 0)])
    queue.pieces(100)
    queue.through(6, 0, 0.0)
    assert released == [4]
    queue.broken()
    assert sent(queue) == b"two\n"
    assert sum(released) == 8


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=40))
def test_pieces_are_whole_and_in_order_and_together_no_longer_than_asked(sizes):
    queue = Queue(10**9, lambda size: None)
    queue.put([Chunk(bytes(size), 1, n, n + 1) for n, size in enumerate(sizes)])
    seen = []
    while pieces := queue.pieces(1432):
        assert len(pieces) == 1 or sum(map(len, pieces)) <= 1432
        seen += map(len, pieces)
        queue.through(sum(map(len, pieces)), 0, 0.0)
        following = sizes[len(seen) : len(seen) + 1]
        assert not following or sum(map(len, pieces)) + following[0] > 1432
    assert seen == sizes


def test_one_call_is_offered_so_many_pieces_and_no_more():
    queue = Queue(10**6, lambda size: None)
    queue.put([chunk(n, 1) for n in range(1000)])
    assert len(queue.pieces(10**6)) == 512


def test_a_chunk_that_the_kernel_takes_in_many_parts_goes_on_where_it_stopped():
    queue = Queue(10**6, lambda size: None)
    queue.put([chunk(0, 10), chunk(10, 2)])
    for taken in range(0, 12, 3):
        assert b"".join(queue.pieces(100)) == bytes(range(taken, 12))
        queue.through(3, 0, 0.0)
    assert queue.idle
    assert queue.sent == {1: 12}


def test_what_was_offered_and_not_taken_keeps_its_order_and_its_turn():
    queue = Queue(10**6, lambda size: None)
    queue.put([chunk(0, 2), chunk(2, 2), chunk(4, 2)])
    sent(queue)
    queue.repeat(before=1)
    queue.put([chunk(6, 2)])
    queue.packet(b"report")
    for size in (6, 8, 10, 100):
        queue.pieces(size)
        queue.back()
    assert queue.settle(Answer(0, {1: 2})) == (False, [])
    assert queue.handed() == 2
    assert sent(queue) == b"report\2\3\4\5\6\7"


def test_only_what_was_sent_before_a_turn_is_repeated():
    queue = Queue(10**6, lambda size: None)
    for turn in range(3):
        queue.put([chunk(turn, 1)])
        sent(queue, turn=turn)
    queue.repeat(before=1)
    assert queue.unsent() == []
    assert not queue.idle
    assert sorted(queue.unanswered()) == [chunk(0, 1), chunk(1, 1), chunk(2, 1)]
    assert sent(queue, turn=2) == b"\0"
    queue.repeat(before=2)
    queue.repeat(before=2)
    assert queue.in_flight_bytes == sum(item.room for item in queue._kept)
    assert sent(queue, turn=2) == b"\1"


def test_a_goodbye_does_not_outlive_its_connection():
    queue = Queue(10**6, lambda size: None)
    queue.put([chunk(0, 1)])
    queue.last_packets([b"bye"])
    queue.broken()
    assert sent(queue) == b"\0"


def test_what_was_sent_longest_ago_is_the_oldest():
    queue = Queue(771, lambda size: None)
    assert queue.oldest == inf
    for number in range(3):
        queue.put([chunk(number, 1)])
        queue.pieces(9)
        queue.through(1, 0, 5.0 + number)
    assert queue.oldest == 5.0
    queue.settle(Answer(0, {1: 1}))
    assert queue.oldest == 6.0
    for number in range(3, 5):
        queue.put([chunk(number, 1)])
        queue.pieces(9)
        queue.through(1, 0, 9.0)
    assert queue.oldest == 0.0, "of what is forgotten it is not known any more"
    assert queue.in_flight_bytes == queue.kept_bytes == 771, "room for just three"


def test_where_a_question_may_overtake_events_only_the_next_answer_shows_that_they_are_lost():
    queue = Queue(0, lambda size: None, late=1)
    queue.put([chunk(0, 5)])
    sent(queue)
    hole = {1: [Range(1, 0, 5)]}
    assert queue.settle(Answer(1, {1: 5}, hole)) == (False, [])
    assert queue.settle(Answer(2, {1: 5}, hole)) == (True, [Range(1, 0, 5)])


def test_what_the_kernel_will_never_take_is_lost_from_its_place_on():
    released = []
    queue = Queue(10**6, released.append)
    queue.put([chunk(0, 2)])
    sent(queue)
    queue.put([chunk(2, 3), chunk(5, 1)])
    queue.packet(b"report")
    assert queue.unsent() == [chunk(2, 3), chunk(5, 1)]
    assert queue.unanswered() == [chunk(0, 2)]
    assert queue.pieces(9) == [b"report", b"\2\3\4"]
    assert queue.refused() == [chunk(2, 3)]
    assert queue.lost_at == 2
    assert released == [3]
    assert sent(queue) == b"\5"
    queue.repeat(before=1)
    queue.pieces(2)
    assert queue.refused() == [], "it was sent before, and may have arrived"
    assert queue.lost_at == 0
    assert released == [3, 2]
    assert queue.kept_bytes == 256 + 1, "of the other one, which is to be sent again"


def test_nothing_is_held_once_all_is_let_go():
    released = []
    queue = Queue(10**6, released.append)
    queue.put([chunk(n, 1) for n in range(4)])
    queue.pieces(2)
    queue.through(2, 0, 0.0)
    queue.repeat(before=1)
    queue.packet(b"report")
    queue.pieces(7)
    queue.through(6, 0, 0.0)
    queue.clear()
    assert sum(released) == 4
    assert (queue.kept_bytes, queue.in_flight_bytes) == (0, 0)
    assert queue.idle
    queue.put([chunk(4, 1)])
    assert sent(queue) == b"\4"


SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 6)), max_size=6)


@given(SPANS, SPANS, st.integers(0, 600))
def test_what_of_holes_cannot_be_sent_again_is_what_no_chunk_has(chunks, holes, room):
    """Some of the events are forgotten, and some belong to another stream. An answer also names holes of a stream
    without stating the stream's number; these are ignored."""
    queue = Queue(room, lambda size: None)
    queue.put([chunk(first, count) for first, count in chunks])
    sent(queue)
    queue.put([chunk(0, 40, stream=2)])
    named = {3: [Range(3, 0, 9)], 1: [Range(1, f, f + count) for f, count in holes]}
    gone, durable = queue.unreachable(Answer(0, {1: 40, 2: 40}, named))
    assert durable == []
    have = {n for first, count in chunks for n in range(first, first + count)}
    expected = [{*range(f, f + count)} - have for f, count in holes]
    assert all(r.stream == 1 and r.first < r.next for r in gone)
    numbers = [n for r in gone for n in range(r.first, r.next)]
    assert numbers == [n for missing in expected for n in sorted(missing)]


def events(first, count):
    """Return a chunk of encoded events of equal length, and this length (bytes)."""
    data = b"".join(_wire.event(1, n % 2**32, 0, n, n, b"") for n in range(first, first + count))
    return Chunk(data, 1, first, first + count), len(data) // count


@pytest.mark.parametrize("first", [0, 2**32 - 3], ids=["low", "wrap"])
@pytest.mark.parametrize(("holes", "durable"), [((), 6), ((2,), 2), ((0,), 0)])
def test_the_durable_beginning_of_a_chunk_is_not_sent_again(first, holes, durable):
    released = []
    queue = Queue(10**6, released.append)
    chunk, size = events(first, 10)
    queue.put([chunk])
    queue.through(len(b"".join(queue.pieces(10**6))), 0, 0.0)
    queue.broken()
    missing = [Range(1, first + n, first + n + 1) for n in holes]
    queue.settle(Answer(1, {1: first + 6}, {1: missing}))
    assert b"".join(queue.pieces(10**6)) == chunk.data[durable * size :]
    assert sum(released) == queue.settled() == durable * size
    queue.through((10 - durable) * size, 1, 0.0)
    queue.settle(Answer(1, {1: first + 10}))
    assert (sum(released), queue.kept_bytes) == (len(chunk.data), 0)


def test_a_chunk_of_which_the_kernel_had_a_part_goes_on_behind_what_arrived():
    released = []
    queue = Queue(10**6, released.append)
    chunk, size = events(0, 10)
    queue.put([chunk])
    queue.pieces(10**6)
    queue.through(3 * size + 5, 0, 0.0)
    queue.broken()
    assert queue.sent == {1: 3}
    queue.settle(Answer(1, {1: 3}))
    assert b"".join(queue.pieces(10**6)) == chunk.data[3 * size :]
    assert sum(released) == queue.settled() == 3 * size
    assert queue.kept_bytes == 0


def test_a_report_of_discarded_events_goes_with_the_event_behind_it():
    before, after = events(0, 1)[0].data, events(6, 1)[0].data
    report = _wire.report({"full": 5}, [(1, 1, 5)])
    shortened = Chunk(before + report + after, 1, 0, 7).behind(1)
    assert shortened == Chunk(report + after, 1, 1, 7)


@pytest.mark.parametrize("accepted", [0, 1, 2])
def test_a_part_of_a_chunk_that_the_kernel_has_accepted_is_unanswered_and_the_rest_is_unsent(
    accepted,
):
    packets = [_wire.event(1, n, 0, 0, 0, _wire.body("x", {})) for n in range(3)]
    queue = Queue(10**6, lambda size: None)
    queue.put([Chunk(b"".join(packets), 1, 0, 3)])
    queue.pieces(10**4)
    queue.through(sum(map(len, packets[:accepted])) + 3, 0, 0.0)
    first, rest = b"".join(packets[:accepted]), b"".join(packets[accepted:])
    assert queue.unsent() == [Chunk(rest, 1, accepted, 3)]
    assert queue.unanswered() == [Chunk(first, 1, 0, accepted)] * bool(accepted)
