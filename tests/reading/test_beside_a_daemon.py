"""Reading while a daemon takes in what a client sends."""

from __future__ import annotations

import threading

import tailrace
from tailrace_client import Emitter
from tests import toml
from tests.system.collector import until

EVENTS = 20_000


def test_every_snapshot_is_a_beginning_of_what_was_sent_and_nothing_is_missing(collector_of):
    collector = collector_of(more=toml.section("store", commit_interval="100 ms"))
    host, port = collector.address("tcp")
    emitter = Emitter(f"tcp://{host}:{port}", process="sender")

    def send():
        emitter.use_stream(7)
        for number in range(EVENTS):
            emitter.event("sent", number=number)
            if number % 1000 == 0:
                emitter.flush(10)
                looked.wait(
                    10
                )  # so that there are several beginnings, however slow this machine is
                looked.clear()
        emitter.close(10)

    looked = threading.Event()
    thread = threading.Thread(target=send)
    thread.start()
    heights = [0]
    with tailrace.open(collector.store) as store:

        def has_events():
            store.refresh()
            return store.completeness.selected

        until(has_events, "the first events")
        while heights[-1] < EVENTS:
            assert not any(emitter.discarded.values())
            store.refresh()
            sent = store.events(name="sent", columns="seq", order="seq").require_complete()
            seqs = sent.pl()["seq"]
            assert seqs.to_list() == list(range(len(seqs)))
            heights.append(len(seqs))
            assert heights[-1] >= heights[-2]
            looked.set()
        thread.join()
        assert store.events(stream=7, name="sent").count() == EVENTS
    assert len(set(heights)) > 3
