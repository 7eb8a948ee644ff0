"""A disk that fails a sync, or has no room, under a process that does not know: see `preload.c`."""

from __future__ import annotations

import pytest

from tests.spool.numbered import NumberedReader, NumberedWriter


def test_after_a_failed_sync_the_spool_acknowledges_nothing(tmp_path, failing_disk):
    environment = failing_disk.environment("spool/0")
    with NumberedWriter(tmp_path / "spool", 0, environment) as writer:
        writer.follow("durable", 5)
        failing_disk.sync_fails()
        assert writer.end() == 1
    said = [line.split()[0] for line in writer.lines]
    assert said[-2:] == ["failed", "refused"]
    assert set(said[:-2]) == {"durable"}
    assert ".segment: sync failed: Input/output error" in writer.lines[-2]
    failing_disk.works()
    NumberedReader(tmp_path / "spool").check(writer.durable)


@pytest.mark.parametrize("part", ["spool/0", "spool/next"])
def test_without_room_the_spool_waits_and_loses_nothing(tmp_path, failing_disk, part):
    with NumberedWriter(tmp_path / "spool", 0, failing_disk.environment(part)) as writer:
        writer.follow("durable", 5)
        failing_disk.no_room()
        writer.follow("full", 3)
        assert "No space left on device" in writer.lines[-1]
        held = writer.durable
        failing_disk.works()
        writer.follow("durable", 20)
        assert writer.durable > held
        writer.kill()
    NumberedReader(tmp_path / "spool").check(writer.durable)
