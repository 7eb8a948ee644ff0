"""A collector and its table are asked one after the other: what is committed in between is not left out."""

from __future__ import annotations

import pytest

from tailrace.query.completeness import EVERYTHING
from tailrace.query.engine import Engine
from tailrace.query.live import AwaitedEvents, Live
from tailrace.reading.snapshot import SnapshotReader
from tests.query.tables import gap, make, row


class Collector:
    """Waits for three events until it commits their gap, which it does just after a snapshot."""

    def __init__(self, store):
        self.store = make(store, [row(seq=0)])
        self.committed = False

    def look(self):
        awaited = () if self.committed else (AwaitedEvents("sim", "heph", "a", "1", 3),)
        return Live(awaited=awaited)

    def commit(self):
        if not self.committed:
            make(self.store, [gap(3, 1)])
        self.committed = True


class Snapshots(Engine):
    """An engine beside a collector that commits as soon as a snapshot is taken."""

    def __init__(self, collector, *, at_once):
        super().__init__(collector.store)
        self._collector = collector
        if at_once:
            collector.commit()

    def refresh(self):
        newer = super().refresh()
        self._collector.commit()
        return newer


@pytest.mark.parametrize("at_once", [True, False])
def test_the_collector_is_asked_for_each_snapshot(tmp_path, at_once):
    collector = Collector(tmp_path)
    asking = SnapshotReader(lambda: Snapshots(collector, at_once=at_once), collector.look)
    for _ in range(3):
        whole = asking.completeness(EVERYTHING)
        assert whole.awaited + sum(whole.missing.values()) >= 3
        assert not whole.complete
        asking.refresh()
    assert (whole.awaited, whole.missing) == (0, {"network": 3})
