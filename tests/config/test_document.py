"""Lines of keys in TOML text, and files that are not TOML."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given, settings, strategies as st

from tailrace.config.document import Document, key_lines, read

TEXT = """\
# a comment with [brackets] and key = "value"
[store]
path = "a # no comment"  # a comment
options = { one = "1", "two.three" = "2" }

  [ sources . "runs" ]  # odd, and allowed
  type = "tail"
paths = [
  "[sources.no]",   # listen = "nowhere"
  '''
format = "not here"
''',
]
format = '''
record_max = 1
'''
record_max = "1 MiB"
[sources]
other.type = "udp"
other.listen = "x"
[[odd]]
key = 1
[[odd]]
key = 2
"""


def test_every_key_has_the_line_it_was_written_on():
    assert key_lines(TEXT) == {
        ("store",): 2,
        ("store", "path"): 3,
        ("store", "options"): 4,
        ("store", "options", "one"): 4,
        ("store", "options", "two.three"): 4,
        ("sources",): 6,
        ("sources", "runs"): 6,
        ("sources", "runs", "type"): 7,
        ("sources", "runs", "paths"): 8,
        ("sources", "runs", "format"): 14,
        ("sources", "runs", "record_max"): 17,
        ("sources", "other"): 19,
        ("sources", "other", "type"): 19,
        ("sources", "other", "listen"): 20,
        ("odd",): 21,
        ("odd", "key"): 22,
    }


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_only_newlines_begin_a_line(newline):
    text = newline.join(["# \u2028", "a = '\u2028\x85'", 'b = """', '"""', "c = 1"])
    assert key_lines(text) == {("a",): 2, ("b",): 3, ("c",): 5}


KEYS = st.sampled_from(["a", "b-c", '"q.q"', "'[x]'", '"=#\\""', "1"])
VALUES = st.sampled_from(
    [
        "1",
        '"[t] # x = 1"',
        "'''\n[t]\nk = 1\n\n'''",
        '"""\\\n  k = "2"\n"""',
        "[\n1, # ]\n\n2]",
        "{ k.m = 1 }",
    ]
)
NOISE = st.sampled_from(["", "# [t]\n", "\n\n", "  \t\n", "# k = '''\n"])


@settings(deadline=None)
@given(st.lists(st.tuples(NOISE, KEYS, st.lists(st.tuples(NOISE, KEYS, VALUES)))))
def test_the_line_of_any_key_is_where_its_statement_begins(tables):
    text, expected, seen = "", {}, set()
    for noise, name, statements in tables:
        table = next(iter(tomllib.loads(f"{name}=1")))
        if table in seen:
            continue
        seen.add(table)
        text += noise
        expected[table,] = text.count("\n") + 1
        text += f"[{name}]\n"
        for more, spelled, value in statements:
            key = next(iter(tomllib.loads(f"{spelled}=1")))
            if (table, key) not in expected:
                text += more
                expected[table, key] = text.count("\n") + 1
                text += f"{spelled} = {value}\n"
    tomllib.loads(text)
    assert {path: line for path, line in key_lines(text).items() if len(path) < 3} == expected


def test_a_key_that_was_not_written_is_looked_for_above(tmp_path):
    (tmp_path / "a.toml").write_text("\n[sources.runs]\n")
    document = read(tmp_path / "a.toml")
    assert isinstance(document, Document)
    assert document.where("sources", "runs", "type").line == 2


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"[store\n", 1),
        (b"[store]\npath\n[spool]\n", 2),
        (b"[store]\r\npath = \r\n", 2),
        (b"[store]\n\npath = [1,\n\n\n[spool]\n", 6),
        (b"[store]\n\npath = '''\n\n[spool]\n", 3),
        (b"[store]\npath = [1,\n\n", 2),
        (b"[store]\npath = 'a'\n[spool]\n[store]\n", 4),
        (b"[store]\npath = 'a'\npath = 'a'", 3),
        (b"[store]\npath = '\xff'\n", 2),
        (b"a = 1\nb = " + b"9" * 5000 + b"\nc = 1\n", 2),
        (b"a = 1\nb = " + b"[" * 5000 + b"\nc = 1\n", 2),
        (b"a = 1\nb = " + b"[" * 5000 + b"]" * 5000 + b"\nc = 1\n", 2),
    ],
)
def test_what_is_not_toml_is_one_problem_with_its_line(tmp_path, text, line):
    (tmp_path / "a.toml").write_bytes(text)
    problem = read(tmp_path / "a.toml")
    assert str(problem).startswith(f"{tmp_path}/a.toml:{line}: is not "), str(problem)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    assert str(read(tmp_path / "no.toml")) == (
        f"{tmp_path}/no.toml: cannot be read: No such file or directory"
    )
    assert str(read(tmp_path)) == f"{tmp_path}: cannot be read: Is a directory"
