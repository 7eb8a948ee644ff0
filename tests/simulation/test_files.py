"""Files in virtual time: seeds, what the oracle must object to, and what it cannot know."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ingest.test_machine import attributes
from tests.simulation import facts
from tests.simulation.facts import Files, Scenario, decode, encode
from tests.simulation.generate import generate_of_files
from tests.simulation.oracle import check
from tests.simulation.play import Play
from tests.simulation.traces import written
from tests.simulation.verdict import judge
from tests.simulation.violation import Violation
from tests.simulation.world import MS, SECOND

HERE = Path(__file__).parent
BLIND = HERE / "blind"


def play(*course, **files):
    played = Play(Scenario(seed=0, facts=list(course), fates={}, files=Files(**files)))
    played.run()
    return played


def grown(format_, path):
    """A trace with records, bytes that nobody can read and a number left out, in torn slices."""
    begin = facts.BeginTrace(at=0, trace=1, format=format_, path=path)
    slices = [
        facts.WriteTrace(
            at=(number + 1) * 300 * MS, trace=1, count=20, held=5, garbage=number == 1,
            skipped=2 * (number == 2),
        )
        for number in range(4)
    ]  # fmt: skip
    return [begin, *slices, facts.EndTrace(at=2 * SECOND, trace=1)]


PATHS = {
    "ovni": "t/loom.node.1/proc.1001/thread.1001/stream.obs",
    "dftracer": "a.pfw",
    "et3": "a.trace",
}


@pytest.mark.parametrize("seed", range(6))
def test_each_record_is_stored_once_or_named(seed):
    verdict = judge(generate_of_files(seed))
    assert verdict.kind is None, f"seed {seed}: {verdict.about}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 200))
def test_it_is_so_for_two_hundred_seeds(seed):
    verdict = judge(generate_of_files(seed))
    assert verdict.kind is None, f"seed {seed}: {verdict.about}"


def test_a_scenario_of_files_is_the_same_after_its_file():
    for seed in range(20):
        scenario = generate_of_files(seed)
        assert decode(encode(scenario)) == scenario


@pytest.mark.parametrize("format_", PATHS)
def test_a_trace_that_grows_in_slices_is_whole(format_):
    played = play(*grown(format_, PATHS[format_]))
    check(played)
    records = [record for row in played.collector.rows if (record := written(row))]
    assert len(records) == 80
    (quarantined,) = played.collector.machine.quarantine.frames.values()
    assert quarantined


@pytest.mark.parametrize(
    ("kind", "spoil"),
    [
        ("a record nowhere", lambda rows, at: rows.pop(at)),
        ("a record stored twice", lambda rows, at: rows.append(rows[at])),
        ("a record at another place", lambda rows, at: rows[at].update(offset=7)),
        ("a record that nobody wrote", lambda rows, at: rows[at].update(name="1/999999")),
        ("a trace in two sessions", lambda rows, at: rows[at].update(session="other")),
    ],
)
def test_the_oracle_objects(kind, spoil):
    played = play(*grown("dftracer", "a.pfw"))
    rows = played.collector.rows
    spoil(rows, next(at for at, row in enumerate(rows) if written(row)))
    with pytest.raises(Violation) as raised:
        check(played)
    assert raised.value.kind == kind


def test_the_oracle_misses_what_is_not_kept_in_the_quarantine():
    played = play(*grown("et3", "a.trace"))
    played.collector.machine.quarantine.frames.clear()
    with pytest.raises(Violation) as raised:
        check(played)
    assert raised.value.kind == "unreadable bytes that are not kept"


@pytest.mark.parametrize(
    ("kind", "spoil"),
    [
        ("a document that is not told", lambda rows, at: rows.pop(at)),
        ("a document from elsewhere", lambda rows, at: rows.append(rows[at] | {"name": "p.Of2"})),
    ],
)
def test_the_oracle_objects_to_names(kind, spoil):
    """The end of the second trace, which has another name, wrote its names, too."""
    second = [
        facts.BeginTrace(at=0, trace=2, format="et3", path="b.trace"),
        facts.WriteTrace(at=SECOND, trace=2, count=1),
        facts.EndTrace(at=2 * SECOND, trace=2),
    ]
    played = play(*grown("et3", "a.trace"), *second)
    check(played)
    rows = played.collector.rows
    spoil(rows, next(at for at, row in enumerate(rows) if row["name"] == "p.Of1"))
    with pytest.raises(Violation) as raised:
        check(played)
    assert raised.value.kind == kind


@pytest.mark.parametrize("format_", ["ovni", "et3"])
def test_documents_that_come_at_the_end_are_told(format_):
    played = play(*grown(format_, PATHS[format_]))
    check(played)
    documents = [
        row
        for row in played.collector.rows
        if row["name"] == "p.Of1" or (row["name"] == "metadata" and "finished" in row["attributes"])
    ]
    assert len(documents) == 1


def test_the_oracle_objects_to_more_unread_than_there_was():
    scenario = decode((HERE / "corpus/unread-of-a-file-that-waits-for-a-place.json").read_bytes())
    played = Play(scenario)
    played.run()
    check(played)
    (unread,) = (r for r in played.collector.rows if attributes(r).get("detail") == "unread")
    unread["attributes"] = unread["attributes"].replace('"bytes":', '"bytes":9')
    with pytest.raises(Violation) as raised:
        check(played)
    assert raised.value.kind == "more unread than there was"


def test_a_file_that_waits_for_a_place_is_read_after_another_file_has_its_name():
    """The collector has opened it, to see which format it has. The other file is deleted before anybody sees its content."""
    played = Play(decode((HERE / "corpus" / "file-that-waits-and-is-replaced.json").read_bytes()))
    played.run()
    waiting, unseen = played.yard.files[2], played.yard.files[3]
    assert waiting.path == unseen.path
    assert not any(unseen.sizes)
    check(played)
    rows = played.collector.rows
    (session,) = [r["session"] for r in rows if attributes(r).get("closed") == "replaced"]
    assert sum(row["session"] == session and row["kind"] != "session" for row in rows) == 200
    rows[:] = [row for row in rows if row["session"] != session]
    with pytest.raises(Violation) as raised:
        check(played)
    assert str(raised.value).startswith("lost without a word: (2, ")


def test_what_is_packed_and_renamed_between_two_looks_is_read_twice():
    scenario = decode((BLIND / "packed-and-renamed-between-two-looks.json").read_bytes())
    assert judge(scenario).kind == "a record stored twice"


def test_a_file_that_is_emptied_while_it_is_packed_is_read_twice():
    scenario = decode((BLIND / "emptied-while-it-was-packed.json").read_bytes())
    assert judge(scenario).kind == "a record stored twice"


def test_a_copy_of_an_emptied_file_is_read_again_only_after_a_restart():
    """The file looks emptied, because a new file has its inode number and its time of creation."""
    name = "copy-of-an-emptied-file-after-a-restart.json"
    played = Play(decode((BLIND / name).read_bytes()))
    played.run()
    check(played)
    del played.collector.outages[2:]
    with pytest.raises(Violation) as raised:
        check(played)
    assert raised.value.kind == "a record stored twice"


def test_of_what_is_written_and_emptied_between_two_looks_nothing_is_known():
    scenario = decode((BLIND / "written-and-emptied-between-two-looks.json").read_bytes())
    played = Play(scenario)
    played.run()
    check(played)
    stored = {record[0] for row in played.collector.rows if (record := written(row))}
    assert stored == {2}
    assert not [row for row in played.collector.rows if row["kind"] == "gap"]


def test_what_is_lost_while_it_waits_is_not_named_beside_what_may_be_its_copy():
    name = "lost-while-it-waited-beside-what-may-be-its-copy.json"
    played = Play(decode((BLIND / name).read_bytes()))
    played.run()
    check(played)
    assert {record[0] for row in played.collector.rows if (record := written(row))} == {1}
    assert not [row for row in played.collector.rows if row["kind"] == "gap"]


def test_a_file_that_is_moved_onto_the_copy_that_gzip_writes_is_there():
    """gzip deletes the original at its end, so what it held is nowhere any more."""
    name = "moved-onto-the-copy-that-gzip-writes.json"
    played = Play(decode((HERE / "corpus" / name).read_bytes()))
    played.run()
    check(played)
    packed, moved, _ = played.yard.files.values()
    assert (packed.gone, packed.gone_at // SECOND) == ("deleted", 102)
    assert (moved.gone, moved.gone_at // SECOND) == ("emptied", 115)


@pytest.mark.parametrize(("held", "kind"), [(100, None), (0, "open, and the file is gone")])
def test_a_session_goes_on_with_what_may_be_the_beginning_of_a_copy(held, kind):
    """The file is gone, and nothing more comes of the packed one, which begins with the same bytes."""
    begin, copy = (
        facts.BeginTrace(at=at, trace=trace, format="dftracer", path=path, packed=trace == 2)
        for at, trace, path in ((0, 1, "a.pfw"), (5 * SECOND, 2, "a.pfw.gz"))
    )
    write = facts.WriteTrace(at=SECOND, trace=1, count=3)
    beginning = facts.WriteTrace(at=5 * SECOND, trace=2, count=1, held=held)
    delete = facts.DeleteTrace(at=6 * SECOND, trace=1)
    played = play(begin, write, copy, beginning, delete)
    close = [row for row in played.collector.rows if row["name"] == "close"]
    assert len(close) == (kind is not None)
    played.collector.rows[:] = [row for row in played.collector.rows if row not in close]
    if kind is None:
        check(played)
        return
    with pytest.raises(Violation) as raised:
        check(played)
    assert raised.value.kind == kind


def test_a_seed_of_files_is_a_run_whatever_the_hash_seed():
    program = (
        "from tests.simulation.generate import generate_of_files;"
        "from tests.simulation.verdict import judge; print(judge(generate_of_files(2)).trace)"
    )
    traces = {
        subprocess.check_output(
            [sys.executable, "-c", program], env=os.environ | {"PYTHONHASHSEED": seed}, text=True
        )
        for seed in ("1", "2")
    }
    assert len(traces) == 1
