"""The rows of one commit are judged in their order."""

from __future__ import annotations

import pytest

from tests.simulation.book import Book
from tests.simulation.play import Play
from tests.simulation.test_exclusions import OVERTAKEN
from tests.simulation.violation import Violation


@pytest.fixture(scope="module")
def rows():
    """Events from a forgotten gap, and the announcement of their session."""
    played = Play(OVERTAKEN)
    played.run()
    (opened,) = (row for row in played.collector.rows if row["name"] == "open")
    return played.collector.rows, opened | {"name": "tailrace.session"}


def test_a_commit_may_announce_a_session_behind_its_events_from_a_forgotten_gap(rows):
    """Blind spot: "what came below a forgotten gap"."""
    came, announcement = rows
    Book(forgets=True).go_on([*came, announcement])


def test_an_event_from_a_gap_that_stays_is_wrong_behind_the_announcement(rows):
    came, announcement = rows
    with pytest.raises(Violation) as raised:
        Book(forgets=True).go_on([announcement, *came])
    assert raised.value.kind == "stored and in a gap"
