"""Zeros amid a file, as a crashed file system or a rotation leaves them: a source that follows the file hands on what an import does."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import trio
from hypothesis import given, strategies as st
from trio.testing import MockClock

from tests.forms import examples
from tests.importing.test_kinds import EVENTS, FILES
from tests.ingest.log import Log, run
from tests.sources.tail.recorder import Recorder, Tail

NAMES = {
    "dftracer": "a.pfw",
    "et3": "a.trace",
    "heph": "a.heph",
    "jets": "a.jets",
    "ovni": "loom.h.1/proc.1/thread.1/stream.obs",
}


def append(path, at, data):
    """Write at an offset, which may lie behind the end of the file."""
    with path.open("r+b" if path.exists() else "wb") as file:
        file.seek(at)
        file.write(data)


async def read(format_, pieces, *, once):
    """The session of a file that grows by these pieces, or that has them all; a number stands for so many bytes that nobody
    wrote."""
    intake = Recorder()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, NAMES[format_])
        path.parent.mkdir(parents=True, exist_ok=True)
        async with trio.open_nursery() as nursery:
            tail = None if once else Tail(nursery, intake, directory, format=format_)
            size = 0
            for piece in pieces:
                if isinstance(piece, int):
                    size += piece
                    continue
                append(path, size, piece)
                size += len(piece)
                if tail:
                    await trio.sleep(2)
            tail = tail or Tail(nursery, intake, directory, format=format_, once=True)
            await trio.sleep(60)
            await tail.stop()
    (session,) = intake.sessions
    losses = [(loss.detail, loss.size) for loss in session.losses]
    return bytes(session.content), losses, [size for _, size in intake.chunks]


def stored(format_, content, sizes):
    """The events and the unreadable bytes of a session that has its content in chunks of these sizes."""
    log = Log()
    session = log.open_file(format_, NAMES[format_])
    at = 0
    for size in sizes:
        log.data(session, content[at : at + size])
        log.tick(5)
        at += size
    log.close(session, "end of file")
    found = run(log.entries)[1]
    events = [
        (r["stream"], r["name"], r["start"], r["offset"]) for r in found if r["kind"] in EVENTS
    ]
    bad = [
        (r["name"], r["offset"], json.loads(r["attributes"]))
        for r in found
        if r["kind"] == "gap" and '"bytes"' in r["attributes"]
    ]
    return sorted(events, key=str), covered(bad)


def covered(bad):
    """The bytes of unreadable pieces by reason. A chunk may end within a piece, which then has two rows."""
    sums = Counter()
    for reason, _, about in bad:
        sums[reason, about["detail"]] += about["bytes"]
    first = min((offset for _, offset, _ in bad), default=None)
    return first, sums


@pytest.mark.parametrize("format_", NAMES)
@examples(25)
@given(data=st.data())
def test_a_followed_file_with_zeros_amid_it_is_read_as_an_import_reads_it(format_, data):
    vector = data.draw(
        st.sampled_from([v for v in FILES if v.format.name == format_ and len(v.data) > 300])
    )
    place = data.draw(st.integers(1, len(vector.data)))
    size = data.draw(st.sampled_from([1, 70, 4096, 5000, 70_000]))
    sparse = data.draw(st.booleans())
    cuts = sorted({0, *data.draw(st.lists(st.integers(0, place), max_size=2)), place})
    before = [vector.data[a:b] for a, b in pairwise(cuts)]
    zeros = [size] if sparse else [bytes(size // 2), bytes(size - size // 2)]
    behind = vector.data[place:]
    pieces = [each for each in (*before, *zeros, behind[:50], behind[50:]) if each]
    found = [
        trio.run(
            lambda once=once: read(format_, pieces, once=once),
            clock=MockClock(autojump_threshold=0),
        )
        for once in (False, True)
    ]
    (content, losses, sizes), imported = found
    assert (content, losses) == imported[:2]
    if not sparse:
        assert not losses
        assert content == b"".join(pieces)
        assert stored(format_, content, sizes) == stored(format_, content, imported[2])
