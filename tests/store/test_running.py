"""Which collectors have a directory in a store, and whether they finished."""

from __future__ import annotations

import json
import sys
import threading

from tailrace.store import presence
from tailrace.store.presence import RunningMarks


def test_main_has_the_whole_and_each_other_one_a_part(tmp_path):
    assert presence.directories(tmp_path) == {"main": tmp_path}
    for name in ("b", "a"):
        (tmp_path / "collectors" / name).mkdir(parents=True)
    (tmp_path / "collectors" / "no directory").touch()
    assert presence.directories(tmp_path) == {
        "main": tmp_path,
        "a": tmp_path / "collectors" / "a",
        "b": tmp_path / "collectors" / "b",
    }


def test_a_store_whose_place_for_collectors_is_a_file_has_none(tmp_path):
    (tmp_path / "collectors").touch()
    assert presence.directories(tmp_path) == {"main": tmp_path}


def test_each_collector_finishes_for_itself(tmp_path):
    part = tmp_path / "collectors" / "a"
    part.mkdir(parents=True)
    marks = [RunningMarks(directory) for directory in (tmp_path, part)]
    for each in marks:
        each.begin()
    marks[0].finish()
    assert presence.is_finished(tmp_path)
    assert not presence.is_finished(part)


def test_the_port_file_of_another_collector_is_left(tmp_path):
    marks = RunningMarks(tmp_path)
    marks.write_ports({"pid": 1})
    (tmp_path / "ports.json").write_text('{"pid": 2}')
    marks.close()
    assert (tmp_path / "ports.json").read_text() == '{"pid": 2}'
    marks.check()


def test_a_collector_that_ended_left_no_port_file(tmp_path):
    marks = RunningMarks(tmp_path)
    marks.write_ports({"pid": 1})
    assert (tmp_path / "ports.json").exists()
    marks.close()
    marks.check()
    assert not (tmp_path / "ports.json").exists()


def test_a_check_in_another_thread_spoils_no_port_file(tmp_path):
    """Both wrote `ports.json.new`, so one of them put the other's empty file in place, or found none."""

    def check(marks, ended):
        while not ended.is_set():
            marks.check()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for number in range(200):
            (tmp_path / "ports.json").unlink(missing_ok=True)
            marks, ended = RunningMarks(tmp_path), threading.Event()
            checking = threading.Thread(target=check, args=(marks, ended))
            checking.start()
            try:
                marks.write_ports({"pid": number})
                assert json.loads((tmp_path / "ports.json").read_text()) == {"pid": number}
            finally:
                ended.set()
                checking.join()
    finally:
        sys.setswitchinterval(before)
