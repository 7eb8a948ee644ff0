"""The power is cut under a process that writes; after that, what it said was durable is there."""

from __future__ import annotations

import contextlib
import random

import pytest

from tests.spool.numbered import NumberedReader, NumberedWriter


@pytest.mark.parametrize("cuts", [3, pytest.param(30, marks=pytest.mark.slow)])
def test_what_was_durable_survives_any_number_of_power_cuts(loopfs, cuts):
    random_ = random.Random(cuts)
    directory = loopfs.path / "spool"
    reader = NumberedReader(directory)
    for _ in range(cuts):
        with NumberedWriter(directory, reader.next) as writer:
            writer.follow("durable", random_.randrange(1, 100))
            loopfs.cut()
            writer.kill()
        loopfs.unmount()
        loopfs.mount()
        reader.check(writer.durable)
    assert reader.next > 100 * cuts, "much was written in each life"


def fill(path):
    """Write until there is no room."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(bytes(2**20)):
            pass


def test_a_disk_that_is_really_full_loses_nothing(loopfs):
    directory = loopfs.path / "spool"
    ballast = loopfs.path / "ballast"
    with NumberedWriter(directory, 0) as writer:
        writer.follow("durable", 1)
        fill(ballast)
        writer.follow("full", 3)
        held = writer.durable
        ballast.unlink()
        writer.follow("durable", 20)
        assert writer.durable > held
        writer.kill()
    NumberedReader(directory).check(writer.durable)
