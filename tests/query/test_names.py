"""Test names that arrive late or are in other files: which event gets which name, and what becomes of the event's key."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings, strategies as st

from tailrace.model.record import named
from tailrace.query.engine import Engine
from tests.query.memory import Views
from tests.query.tables import commit, dicts, make, row, session


@pytest.fixture(scope="module")
def views():
    return Views()


def name(key, text, scope="session", **values):
    """Return the row that the ingest makes of a record from `named`."""
    record = named(0, 0, key, text, scope=scope)
    return row("name", stream="", name=text, attributes=record.attributes, **values)


def opened(session_, *, at=0, group="", **values):
    return session("open", session=session_, group=group, opened=at, transport="tail", **values)


def shown(views, rows, view="events"):
    """Return the name and the attributes of each event, sorted by offset."""
    where = "" if view == "spans" else "WHERE kind NOT IN ('name', 'session')"
    found = views.of(rows, f'FROM {view} SELECT name, attributes {where} ORDER BY "offset"')
    return [(f["name"], f["attributes"]) for f in found]


# The three formats with names


def test_an_et3_trace_is_named_by_its_maps_at_the_end(views):
    begin = {"$name": "method:31", "method_id": 31, "receiver": 9}
    alloc = {"$late": {"class": "class:4"}, "class_id": 4, "size": 24}
    rows = [
        row("begin", id=1, start=1, attributes=begin, offset=1),
        row("instant", name="alloc", start=2, attributes=alloc, offset=2),
        row("span", id=1, start=1, end=3, attributes=begin, offset=1, end_offset=3),
        name("method:31", "Main#run", offset=4),
        name("class:4", "Main$Node", offset=4),
        row("begin", session="b", id=1, start=1, attributes=begin, offset=5),
    ]
    assert shown(views, rows) == [
        ("Main#run", '{"method_id":31,"receiver":9}'),
        ("alloc", '{"class_id":4,"size":24,"class":"Main$Node"}'),
        (None, json.dumps(begin)),
    ]
    assert shown(views, rows, "spans") == [
        ("Main#run", '{"method_id":31,"receiver":9}'),
        (None, json.dumps(begin)),
    ]


def test_a_dftracer_hash_is_named_by_another_process(views):
    def read(**values):
        late = {"$late": {"fname": "FH:ab12"}, "args": {"ret": 7}}
        return row("span", name="read", attributes=late, **values)

    rows = [
        name("FH:ab12", "/data/a b.h5", "source", session="parent"),
        read(session="child", offset=1),
        read(session="child", source="other", offset=2),
    ]
    assert shown(views, rows) == [
        ("read", '{"args":{"ret":7},"fname":"/data/a b.h5"}'),
        ("read", '{"$late": {"fname": "FH:ab12"}, "args": {"ret": 7}}'),
    ]


def test_what_a_process_says_of_itself_by_keys_is_named_in_its_session(views):
    """DFTracer does so. A forked process has keys of names that are only in its parent's file."""

    def start(cwd, **values):
        says = {"producer": {"cmd_hash": "c1", "cwd": "d1", "ppid": 7}}
        return session("start", offset=1, **says, **({"cwd": cwd} if cwd else {}), **values)

    def said(rows):
        found = views.of(rows, "SELECT producer FROM sessions ORDER BY session")
        return [row["producer"] and json.loads(row["producer"]) for row in found]

    late = {"$late": {"cmd": "SH:c1", "cwd": "FH:d1"}}
    child = start(None, session="child", **late)
    hashes = {"cmd_hash": "c1", "cwd": "d1", "ppid": 7}
    assert said([start("/run", cmd="python;a.py"), child]) == [
        hashes | {"cmd": "python;a.py", "cwd": "/run"}, hashes,
    ]  # fmt: skip
    names = [
        name("SH:c1", "python;b.py", "source", session="parent"),
        name("FH:d1", "/here", "source", session="parent"),
    ]
    assert said([child, *names])[0] == hashes | {"cmd": "python;b.py", "cwd": "/here"}
    footer = session("footer", session="j", cmd="no name", totals={"cmd": 1})
    assert said([footer]) == [None]


def test_ovni_marks_and_tasks_are_named_by_other_threads_of_their_run(views):
    task = "task_type:node.x/7:V3"
    mark = {"$late": {"title": "mark:1"}, "$name": "mark:1:2", "value": 2}
    rows = [
        opened("a", group="/run1"),
        opened("b", group="/run1"),
        opened("c", group="/run2"),
        session("restart", session="b.1", continues="b", group="/run1", opened=5),
        name("mark:1", "phase", "group", session="a", offset=1),
        name("mark:1:2", "solve", "group", session="a", offset=1),
        name(task, "Copy {}", "group", session="a", offset=1),
        row("instant", session="b", attributes=mark, offset=2),
        row("span", session="b.1", start=1, attributes={"$name": task}, offset=3),
        row("instant", session="c", attributes=mark, offset=4),
    ]
    assert shown(views, rows) == [
        ("solve", '{"value":2,"title":"phase"}'),
        ("Copy {}", None),
        (None, json.dumps(mark)),
    ]


def test_of_several_keys_the_first_that_is_known_counts(views):
    mark = {"$name": "mark:1:3\nmark:1"}
    rows = [
        opened("a", group="/run"),
        row("instant", session="a", attributes=mark, offset=9),
        name("mark:1", "phase", "group", session="a", offset=1),
        name("mark:1:3", "solve", "group", session="a", offset=1),
    ]
    for expected in ("solve", "phase", None):
        assert shown(views, rows)[0][0] == expected
        rows.pop()


# The choice between several names


def test_the_session_comes_first_then_its_run_then_the_source(views):
    asking = row(session="a", attributes={"$name": "k"}, offset=9)
    rows = [
        asking,
        *(opened(s, group="/r") for s in "ab"),
        name("k", "source's", "source", session="c", offset=3),
        name("k", "run's", "group", session="b", offset=2),
        name("k", "its own", session="a", offset=1),
    ]
    for expected in ("its own", "run's", "source's", None):
        assert shown(views, rows)[0][0] == expected
        rows.pop()


def test_what_the_session_itself_says_comes_first_whatever_its_scope(views):
    rows = [
        row(session="a", attributes={"$name": "k"}),
        *(opened(s, group="/r", at=at) for at, s in enumerate("ab")),
        name("k", "its own", "group", session="a"),
        name("k", "later", "group", session="b"),
    ]
    assert shown(views, rows)[0][0] == "its own"


def test_the_last_name_of_a_key_counts(views):
    def asked(*rows):
        asking = row(session="z", attributes={"$name": "k"})
        return shown(views, [asking, *rows])[0][0]

    def given(text, **values):
        return name("k", text, **{"scope": "source", **values})

    first, second = given("1", session="a", offset=9), given("2", session="a", offset=10)
    assert asked(first, second) == asked(second, first) == "2"
    other = given("3", session="b", offset=1)
    assert asked(opened("a", at=5), opened("b", at=6), first, second, other) == "3"
    assert asked(opened("a", at=6), opened("b", at=5), first, second, other) == "2"
    assert asked(opened("a", at=-5), first, other) == "1"


def test_a_name_by_id_and_a_name_by_key_stand_beside_each_other(views):
    rows = [
        row(id=7, offset=1),
        row(id=8, attributes={"$name": "k"}, offset=2),
        row(id=9, name="own", attributes={"$name": "k"}, offset=3),
        row("name", stream="", id=7, name="by id", offset=4),
        name("k", "by key", offset=5),
    ]
    assert shown(views, rows) == [
        ("by id", None),
        ("by key", None),
        ("own", '{"$name": "k"}'),
    ]


KEYS = st.sampled_from(["k", "m", 'q"~/\\', ""])
SESSIONS = st.tuples(st.sampled_from("st"), st.sampled_from(["a", "b", "b.1", "c"]))


def test_names_are_those_of_a_plain_model(views):
    @settings(deadline=None, max_examples=25)
    @given(
        groups=st.dictionaries(SESSIONS, st.sampled_from(["", "/r", "/s"])),
        ages=st.dictionaries(SESSIONS, st.integers(0, 2)),
        given_=st.lists(
            st.tuples(SESSIONS, KEYS, st.sampled_from(["session", "group", "source"]),
                      st.sampled_from(["x", "y", "é\n\x00"]), st.integers(0, 3)),
            max_size=8,
        ),
        asked=st.lists(
            st.tuples(SESSIONS, KEYS | st.none(), st.dictionaries(KEYS, KEYS, max_size=3)),
            min_size=1, max_size=6,
        ),
    )  # fmt: skip
    def check(groups, ages, given_, asked):
        rows = [
            opened(s, source=source, group=group, at=ages.get((source, s)))
            for (source, s), group in groups.items()
        ]
        rows += [
            name(key, text, scope, source=source, session=s, offset=place)
            for (source, s), key, scope, text, place in given_
        ]
        expected = []
        for number, ((source, s), key, late) in enumerate(asked):
            about = {"n": number} | ({"$name": key} if key is not None else {}) | {"$late": late}
            rows.append(row(source=source, session=s, attributes=about, offset=number))

            def find(key, at=(source, s)):
                return look_up(groups, ages, given_, at, key)

            found = find(key)
            known = {m: find(k) for m, k in late.items() if find(k) is not None}
            unknown = {m: k for m, k in late.items() if find(k) is None}
            left = {"n": number}
            if found is None and key is not None:
                left["$name"] = key
            if unknown or not late:
                left["$late"] = unknown
            expected.append((found, left | known))
        assert [(n, json.loads(text)) for n, text in shown(views, rows)] == expected

    check()


def look_up(groups, ages, given_, at, key):
    """Return the name of a key for an event of a session, or None."""
    source, _ = at
    run = groups.get(at)
    fits = [
        lambda from_, _: from_ == at,
        lambda from_, scope: scope == "group" and run and groups.get(from_) == run,
        lambda _, scope: scope == "source",
    ]
    for fit in fits:
        names = [
            (ages.get(from_, -1) if from_ in groups else -1, from_[1], place, text)
            for from_, k, scope, text, place in given_
            if k == key and from_[0] == source and fit(from_, scope)
        ]
        if names:
            return max(names)[3]
    return None


# The keys in the attributes


def test_what_is_not_known_is_still_asked_for(views):
    late = {"x": 1, "$late": {"class": "class:4", "field": "field:5"}}
    rows = [row(attributes=late), name("class:4", "Node")]
    assert shown(views, rows) == [
        (None, '{"x":1,"class":"Node","$late":{"field":"field:5"}}'),
    ]


def test_a_span_asks_for_the_names_of_both_of_its_records(views):
    rows = [
        row(
            "span",
            id=1,
            start=1,
            end=2,
            name="a",
            attributes='{"$late":{"why":"w","type":"t"},"x":1}',
        ),
        row("begin", id=2, start=1, attributes='{"$name":"n","$late":{"type":"t"}}', offset=2),
        name("t", "Task"),
        name("w", "Done"),
        name("n", "b"),
    ]
    assert shown(views, rows, "spans") == [
        ("a", '{"x":1,"why":"Done","type":"Task"}'),
        ("b", '{"type":"Task"}'),
    ]


UNASKED = [
    '{ "a": 1.10, "a": 18446744073709551616 }',
    '{"text":"$name $late"}',
    '{"$late":"k"}',
    '{"$late":["k"]}',
    '{"$name":null}',
    '{"inner":{"$name":"k","$late":{"m":"k"}}}',
    '{"$name":"k"',
    '"$late" "$name"',
    "{}",
    "",
    None,
]


@pytest.mark.parametrize("also", [[], [name("k", "known")]])
def test_rows_that_ask_for_nothing_are_as_they_are_stored(views, also):
    rows = [row(attributes=text, offset=i) for i, text in enumerate(UNASKED)]
    assert shown(views, [*rows, *also]) == [(None, text) for text in UNASKED]
    assert shown(views, [*rows, *also], "spans") == [(None, text) for text in UNASKED]


def test_numbers_beside_a_question_keep_their_digits(views):
    text = '{"$name":"k","n":18446744073709551616,"a":1,"a":null,"big":1e400}'
    rows = [row(attributes=text), name("k", "known")]
    assert shown(views, rows) == [("known", text.replace('"$name":"k",', ""))]


# Snapshots


def test_names_that_are_committed_later_are_taken_up_with_the_snapshot(tmp_path):
    asking = row(attributes={"$name": "k"})
    engine = Engine(make(tmp_path, [asking]))
    ask = "SELECT name FROM events WHERE kind = 'span'"
    assert dicts(engine.ask(ask)) == [{"name": None}]
    commit(tmp_path, [name("k", "known")])
    assert dicts(engine.ask(ask)) == [{"name": None}]
    assert engine.refresh()
    assert dicts(engine.ask(ask)) == [{"name": "known"}]
    commit(tmp_path, [name("k", "better", offset=1)])
    assert engine.refresh()
    assert dicts(engine.ask(ask)) == [{"name": "better"}]


def test_attributes_are_not_read_for_names_that_nobody_gives(tmp_path):
    def reads_attributes():
        plan = "EXPLAIN SELECT name FROM events WHERE start > 1"
        return "attributes" in dicts(engine.ask(plan))[0]["plan"]

    engine = Engine(make(tmp_path, [row(), row("name", id=1, name="by id")]))
    assert not reads_attributes()
    commit(tmp_path, [name("k", "known")])
    engine.refresh()
    assert reads_attributes()
