from __future__ import annotations

import json

import pytest

import tailrace_client
from clients.python.tests.reader import packets


def test_labels_are_in_the_announcement_as_texts(tmp_path):
    path = tmp_path / "labelled.heph"
    labels = {"revision": "4f2a", "job": 17, "note": None}
    emitter = tailrace_client.Emitter(f"file://{path}", labels=labels)
    emitter.event("x")
    assert emitter.close()
    _, session, _, _ = packets(path.read_bytes())
    assert json.loads(session.option)["labels"] == {"revision": "4f2a", "job": "17"}


@pytest.mark.parametrize("labels", [{"x": "y" * 400}, {"x" * 400: 1}, {"x": "\u20ac" * 70}])
def test_labels_that_would_fill_a_datagram_are_a_mistake(labels):
    with pytest.raises(ValueError, match="at most 400"):
        tailrace_client.Emitter("udp://127.0.0.1:9", labels=labels)
