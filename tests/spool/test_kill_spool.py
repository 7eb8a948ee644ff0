"""kill -9 at random moments: what was said to be durable is there, in order, once."""

from __future__ import annotations

import random

import pytest

from tests.spool.numbered import NumberedReader, NumberedWriter


@pytest.mark.parametrize("kills", [5, pytest.param(100, marks=pytest.mark.slow)])
def test_what_was_durable_survives_any_number_of_kills(tmp_path, kills):
    random_ = random.Random(kills)
    reader = NumberedReader(tmp_path / "spool")
    for _ in range(kills):
        with NumberedWriter(tmp_path / "spool", reader.next) as writer:
            writer.follow("durable", random_.randrange(1, 100))
            writer.kill()
        reader.check(writer.durable)
    assert reader.next > 100 * kills, "much was written in each life"
