"""Test the names of tasks: names that the same stream defines, that another stream defines, and that were evicted."""

from __future__ import annotations

import json

from tailrace.decoding.formats.ovni import FORMAT
from tailrace.decoding.formats.ovni.names import NAME_MAX, TASKS_MAX, TYPES_MAX, Names, NamesState
from tailrace.decoding.formats.ovni.table import EVENTS
from tailrace.model.record import Kind, Record
from tests.decoding.ovni_bytes import HEADER, event, jumbo, starts, u32

PATH = '/runs/ovni/loom.n"1.job/proc.7/thread.8/stream.obs'
PROCESS = 'n"1.job/7'


def read(*parts: bytes) -> list[Record]:
    decoder = FORMAT.decoder(1 << 20, None)
    decoder.begin(PATH, "auto")
    return decoder.feed(HEADER + starts(1) + b"".join(parts))[2:]


def about(record: Record) -> dict:
    return json.loads(record.attributes)


TYPE = jumbo("VYc", 5, u32(3) + b"solve\0")
CREATE = event("VTc", 6, u32(12, 3))
EXECUTE = event("VTx", 7, u32(12, 0))


def test_a_body_is_called_by_its_type() -> None:
    type_, task, body = read(TYPE, CREATE, EXECUTE)
    assert (type_.kind, type_.name, type_.start) == (Kind.NAME, "solve", 5)
    assert about(type_)["$key"] == f"task_type:{PROCESS}:V3"
    assert (task.kind, task.name, task.start) == (Kind.NAME, "solve", 6)
    assert about(task)["$key"] == f"task:{PROCESS}:V12"
    assert (body.kind, body.name, about(body)) == (
        Kind.BEGIN, "solve", {"mcv": "VTx", "task": 12, "body": 0},
    )  # fmt: skip


def test_what_another_thread_knows_is_asked_for() -> None:
    (body,) = read(EXECUTE)
    assert (body.name, about(body)["$name"]) == (None, f"task:{PROCESS}:V12")
    task, body = read(CREATE, EXECUTE)
    assert (task.name, about(task)["$name"]) == (None, f"task_type:{PROCESS}:V3")
    assert (body.name, about(body)["$name"]) == (None, f"task_type:{PROCESS}:V3")


def test_models_number_their_tasks_and_types_apart() -> None:
    body, share = read(TYPE, CREATE, event("6Tx", 8, u32(12)), event("PQx", 9, u32(3)))[2:]
    assert about(body)["$name"] == f"task:{PROCESS}:612"
    assert about(share)["$name"] == f"task_type:{PROCESS}:P3"


def test_an_id_that_comes_again_is_the_newer_task() -> None:
    other = jumbo("VYc", 6, u32(4) + b"other\0")
    body = read(TYPE, other, CREATE, event("VTc", 7, u32(12, 4)), event("VTx", 8, u32(12, 0)))[-1]
    assert body.name == "other"


def test_the_oldest_are_forgotten_and_then_asked_for() -> None:
    names = Names(NamesState("p"))
    for number in range(TYPES_MAX + 1):
        names.learn_type("V", number, f"type {number}")
    for number in range(TASKS_MAX + 1):
        names.learn_task("V", number, TYPES_MAX)
    assert names.of_type("V", 0) == (None, ',"$name":"task_type:p:V0"')
    assert names.of_type("V", 1) == ("type 1", "")
    assert names.of_task(EVENTS[b"VTx"], (0,)) == (None, ',"$name":"task:p:V0"')
    assert names.of_task(EVENTS[b"VTx"], (1,)) == (f"type {TYPES_MAX}", "")


def test_what_comes_again_is_as_good_as_new() -> None:
    names = Names(NamesState("p"))
    for number in range(TASKS_MAX):
        names.learn_task("V", number, 1)
    for number in range(TYPES_MAX):
        names.learn_type("V", number, "label")
    names.learn_task("V", 5, 2)
    names.learn_type("V", 5, "another")
    assert (len(names.state.tasks), len(names.state.types)) == (TASKS_MAX, TYPES_MAX)
    for number in range(6):
        names.learn_task("V", TASKS_MAX + number, 1)
        names.learn_type("V", TYPES_MAX + number, "label")
    for remembered in (names.state.tasks, names.state.types):
        assert [f"V{number}" in remembered for number in range(8)] == [False] * 5 + [
            True,
            False,
            True,
        ]


def test_a_name_too_long_is_given_and_not_remembered() -> None:
    type_, _, body = read(jumbo("VYc", 5, u32(3) + b"x" * (NAME_MAX + 1)), CREATE, EXECUTE)
    assert type_.name == "x" * (NAME_MAX + 1)
    assert about(body)["$name"] == about(type_)["$key"]
    short = read(TYPE, jumbo("VYc", 6, u32(3) + b"x" * (NAME_MAX + 1)), CREATE, EXECUTE)
    assert short[-1].name is None, "the short name is not the type's any more"


def test_a_type_without_a_label_is_called_by_its_number() -> None:
    type_, _, body = read(jumbo("VYc", 5, u32(3) + b"\0"), CREATE, EXECUTE)
    assert (type_.name, body.name) == ("type 3", "type 3")
