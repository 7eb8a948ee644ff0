"""However many peers, sessions, names and errors there are: no metric has more label sets than documented."""

from __future__ import annotations

import contextlib
import signal
import socket

from tests.ingest.log import heph_event
from tests.metrics.scrape import Scrape
from tests.system.collector import SOURCES, until

SERIES_MAX = 4
PEERS, CONNECTIONS = 120, 60
TAIL = """
[sources.files]
type = "tail"
format = "heph"
paths = ["{0}/loop", "{0}/{1}"]
"""


def test_a_storm_of_peers_sessions_names_and_errors_stays_within_the_bounds(collector_of, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    collector = collector_of(
        sources=SOURCES + TAIL.format(tmp_path, "x" * 300),
        more=f"[metrics]\nseries_max = {SERIES_MAX}\n",
    )
    with (
        contextlib.ExitStack() as peers
    ):  # open to the end: a port that is used again is no new peer
        sizes = [storm(collector, first, peers) for first in (0, 1000)]
    # The second storm of others has brought no series of its own.
    assert sizes[0] == sizes[1]
    text = collector.config.read_text()
    collector.config.write_text(text.replace(f"series_max = {SERIES_MAX}", "series_max = 2"))
    collector.process.send_signal(signal.SIGHUP)
    until(lambda: sum(map(len, sessions(collector))) == 2, "the new bound")
    Scrape(collector.metrics()).check_bounds(collector.status()["sources"], 2)


def storm(collector, first, peers):
    """So many that were never there before; how many samples each metric has then."""
    with contextlib.ExitStack() as stack:
        for number in range(first, first + PEERS):
            sock = peers.enter_context(socket.socket(type=socket.SOCK_DGRAM))
            sock.connect(collector.address("udp"))
            sock.send(heph_event(number, 0, name=f"name {number}".encode()))
        for number in range(first, first + CONNECTIONS):
            sock = stack.enter_context(socket.create_connection(collector.address("tcp")))
            sock.sendall(heph_event(number, 0, name=f"name {number}".encode()))

        def there():
            sources = collector.status()["sources"]
            unfollowed = sum(sources[source]["unfollowed_sessions"] for source in ("udp", "tcp"))
            # A datagram peer of the first storm is still remembered in the second.
            known = PEERS * (2 if first else 1) + CONNECTIONS
            return unfollowed == known - SERIES_MAX

        until(there, "all sessions")
        until(lambda: len(errors(collector)) == 2, "both errors")
        scrape = Scrape(collector.metrics())
        sources = collector.status()["sources"]
    scrape.check_families(sources)
    scrape.check_bounds(sources, SERIES_MAX)
    scrape.check_laws()
    assert len(scrape.families["tailrace_session_reached_ticks"]) == SERIES_MAX
    assert sum(scrape.sums("tailrace_source_followed_sessions", ()).values()) == SERIES_MAX
    # The two errors share what each of four sources has of four label sets.
    (other,) = scrape.families["tailrace_tail_errors"]
    assert other.labels["error"] == "other"
    assert other.value >= 2
    return {name: len(samples) for name, samples in scrape.families.items()}


def sessions(collector):
    return [source["sessions"] for source in collector.status()["sources"].values()]


def errors(collector):
    return collector.status()["sources"]["files"]["errors"]
