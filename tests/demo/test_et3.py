"""The generator's output, read by a reader of this test's own (ET3 specification)."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from tailrace.demo.lines import (
    PIECE_BYTES,
    et3_agent_form,
    et3_agent_maps,
    et3_specification_form,
    et3_specification_maps,
    plain_writes,
)

FIELDS = {"M": 3, "E": 2, "N": 6, "A": 6, "U": 4, "W": 3, "D": 3}


def read(lines):
    """Letter and numbers of each."""
    found = []
    for line in lines:
        letter, *numbers = line.data.decode().split()
        assert line.data == f"{letter} {' '.join(numbers)}\n".encode()
        assert len(numbers) == FIELDS[letter]
        found.append((letter, [int(number) for number in numbers]))
        assert found[-1][0] == line.letter
    return found


@pytest.mark.parametrize("form", [et3_agent_form, et3_specification_form])
def test_the_same_seed_gives_the_same_trace_and_another_seed_another(form):
    assert form(1, 500) == form(1, 500)
    assert form(1, 500) != form(2, 500)


def test_the_clock_of_the_specification_counts_entries_and_exits():
    clock, letters = 0, Counter()
    for line, (letter, numbers) in zip(
        lines := et3_specification_form(1), read(lines), strict=True
    ):
        clock += letter in "ME"
        assert numbers[-1] == clock == line.clock
        letters[letter] += 1
    assert set(letters) == {"M", "E", "N", "A", "U", "D"}
    assert min(letters.values()) > 10


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_agents_end_each_line_with_a_thread_whose_exits_all_have_their_entries(seed):
    stacks, letters, passed = defaultdict(list), Counter(), 0
    for letter, numbers in read(et3_agent_form(seed)):
        letters[letter] += 1
        stack = stacks[numbers[-1]]
        if letter == "M":
            stack.append(numbers[0])
        elif letter == "E":
            while stack.pop() != numbers[0]:
                passed += 1
    assert set(letters) == {"M", "E", "N", "A", "U", "W"}
    assert passed > 0, "some calls end by an exception"
    assert len(stacks) == 4
    assert sorted(map(len, stacks.values())) == [0, 0, 0, 1], "the thread that ends the program"


def test_what_dies_was_made_on_that_thread_and_is_not_used_again():
    made, dead = set(), set()
    for letter, numbers in read(et3_specification_form(2)):
        if letter in "NA":
            made.add(numbers[0])
        elif letter == "D":
            assert numbers[0] in made - dead
            dead.add(numbers[0])
        elif letter == "U":
            assert not {numbers[0], numbers[1]} & dead
        elif letter == "M":
            assert numbers[1] not in dead
    assert dead


def test_the_maps_name_all_that_occurs():
    used = defaultdict(set)
    for letter, numbers in read(et3_agent_form(1)):
        if letter in "ME":
            used["methods.list"].add(numbers[0])
        elif letter in "NA":
            used["classs.list"].add(numbers[2])
        elif letter == "U":
            used["fields.list"].add(numbers[2])
    maps = et3_agent_maps()
    assert set(maps) == set(used)
    for file, ids in used.items():
        pairs = [line.rsplit(",", 1) for line in maps[file].decode().splitlines()]
        assert ids <= {int(id_) for _, id_ in pairs}
        assert all(("#" in name) == (file != "classs.list") for name, _ in pairs)
    maps = et3_specification_maps()
    classes = {line.split(",")[0] for line in maps["class_list"].decode().splitlines()}
    methods = [line.split(",") for line in maps["method_list"].decode().splitlines()]
    assert {class_ for _, class_, _ in methods} == classes
    assert used["methods.list"] <= {int(id_) for id_, *_ in methods}
    assert b"java/util/ArrayList" in maps["class_list"]


def test_a_file_is_written_in_pieces_that_cut_lines():
    lines = et3_agent_form(1, 300)
    pieces = list(plain_writes("a/trace", lines, PIECE_BYTES))
    assert {piece.path for piece in pieces} == {"a/trace"}
    assert b"".join(piece.data for piece in pieces) == b"".join(line.data for line in lines)
    assert not all(piece.data.endswith(b"\n") for piece in pieces)
