"""Compare the table of ovni's events with lists that were extracted from ovni's own tables."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tailrace.decoding.formats.ovni.table import EVENTS, JUMBO, OWN

PAIRS = Path(__file__).parent.parent / "vectors" / "ovni" / "pairs.tsv"

# Numbers of events of each model in ovni 1.14, as ovnievents lists them. nanos6 has one more event, which only old
# traces have.
COUNTS = {
    "kernel": 2, "mpi": 98, "nanos6": 67 + 1, "nodes": 16, "nosv": 72, "openmp": 68, "ovni": 18,
    "tampi": 24,
}  # fmt: skip

# Begins that have an end, but belong to no subsystem: tasks, marks, flushes, and events that the emulator ignores.
OTHER_PAIRS = {
    "OF[": "OF]", "OM[": "OM]", "OU[": "OU]", "KCO": "KCI", "6t[": "6t]", "PBs": "PBS",
    "VTx": "VTe", "VTp": "VTr", "6Tx": "6Te", "6Tp": "6Tr", "PPx": "PPe", "PQx": "PQe",
}  # fmt: skip


def pairs() -> dict[str, tuple[str, str]]:
    """Return the model and the MCV of the end for each begin."""
    lines = PAIRS.read_text().splitlines()[1:]
    return {begin: (model, end) for model, begin, end, _ in (line.split("\t") for line in lines)}


def test_every_model_has_all_its_events() -> None:
    assert Counter(event.model for event in EVENTS.values()) == COUNTS


def test_pairs_are_those_of_the_emulator() -> None:
    ends = {e.begin: (e.model, e.mcv) for e in EVENTS.values() if e.opens is False}
    begins = {e.mcv for e in EVENTS.values() if e.opens}
    assert begins == ends.keys()
    known = pairs()
    assert {begin: ends.pop(begin) for begin in known} == known
    assert {begin: end for begin, (_, end) in ends.items()} == OTHER_PAIRS


@pytest.mark.parametrize("mcv", ["VTc", "VTC", "OHc", "OHC", "VWC", "6Tc", "6TC", "VHa", "VHA"])
def test_letters_that_look_like_a_pair_may_be_none(mcv: str) -> None:
    assert EVENTS[mcv.encode()].opens is None


def test_what_ends_has_the_fields_of_what_begins() -> None:
    def about(event):
        layouts = [(each.struct.format, *each[2:]) for each in event.layouts["<"]]
        return event.channel, event.role, event.name, layouts

    for event in EVENTS.values():
        if event.opens is False:
            assert about(event) == about(EVENTS[event.begin.encode()])


def test_mcvs_are_three_printable_characters_and_names_are_said_of_one_thing_in_a_model() -> None:
    names = Counter()
    for mcv, event in EVENTS.items():
        assert mcv.decode() == event.mcv
        assert len(mcv) == 3
        assert all(0x21 <= byte <= 0x7E for byte in mcv)
        if event.opens is not False:
            names[event.model, event.role, event.name] += 1
    assert [name for name, count in names.items() if count > 1] == []


def test_channels_that_stand_alone_belong_to_one_pair_each() -> None:
    alone = [event.channel for event in EVENTS.values() if event.role in OWN and event.opens]
    assert len(alone) == len(set(alone))


def test_jumbos_are_never_pairs() -> None:
    assert all(event.opens is None for event in EVENTS.values() if event.role in JUMBO)


@pytest.mark.parametrize(
    ("mcv", "sizes"),
    [("OHx", [16]), ("OHC", [12]), ("OCn", [8, 4]), ("OM[", [12]), ("VTx", [8, 4]), ("6Tx", [4]),
     ("VYc", [4]), ("VTc", [8]), ("KCO", [0])],
)  # fmt: skip
def test_payloads_may_be_as_long_as_producers_write_them(mcv: str, sizes: list[int]) -> None:
    assert [layout.size for layout in EVENTS[mcv.encode()].layouts["<"]] == sizes
