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


CONFIG = '[store]\npath = "a"  # größer\n'


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_byte_order_mark_says_nothing(tmp_path, newline):
    (tmp_path / "a.toml").write_bytes(CONFIG.replace("\n", newline).encode("utf-8-sig"))
    document = read(tmp_path / "a.toml")
    assert isinstance(document, Document), str(document)
    assert document.tree == {"store": {"path": "a"}}
    assert document.where("store", "path").line == 2


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (CONFIG.encode("utf-16"), 1, "is UTF-16 (it begins with a byte order mark of UTF-16); save it as UTF-8"),
        (b"\xfe\xff" + CONFIG.encode("utf-16-be"), 1, "is UTF-16 "),
        (CONFIG.encode("utf-16-le"), 1, "as UTF-16 without a byte order mark"),
        (CONFIG.encode("utf-16-be"), 1, "as UTF-16 without a byte order mark"),
        (CONFIG.encode("utf-32"), 1, "is UTF-32 "),
        (CONFIG.encode("latin-1"), 2, "is not UTF-8; save it as UTF-8"),
        (CONFIG.encode("cp1252"), 2, "is not UTF-8; save it"),
        (bytes(200), 1, "has 200 zero bytes and nothing else, as after a crash"),
        (CONFIG.encode() + bytes(10), 3, "has a zero byte, as where a crash cut off a write"),
        (b"[store]\n\xef\xbb\xbfpath = 'a'\n", 2, "U+FEFF (ZERO WIDTH NO-BREAK SPACE)"),
        ("[store]\npath\u00a0= 'a'\n".encode(), 2, "U+00A0 (NO-BREAK SPACE), which is no plain space"),
        ("[store]\n\u200bpath = 'a'\n".encode(), 2, "U+200B (ZERO WIDTH SPACE)"),
        ("[store]\n\u3000path = 'a'\n".encode(), 2, "U+3000 (IDEOGRAPHIC SPACE)"),
        ("[store]\npath = \u201ca\u201d\n".encode(), 2, "U+201C (LEFT DOUBLE QUOTATION MARK), which is no straight quote"),
        ("[store]\npath = \u2018a\u2019\n".encode(), 2, "U+2018 "),
        ("[store]\npath = 'a\u2019\n[spool]\n".encode(), 2, "U+2019 "),
        ("[store]\n\u201cpath\u201d = 'a'\n".encode(), 2, "U+201C "),
        ("\u00a0[store]\n".encode(), 1, "U+00A0 "),
    ],
)  # fmt: skip
def test_what_an_editor_or_a_crash_left_is_named(tmp_path, content, line, words):
    (tmp_path / "a.toml").write_bytes(content)
    problem = str(read(tmp_path / "a.toml"))
    assert problem.startswith(f"{tmp_path}/a.toml:{line}: ")
    assert words in problem


def test_odd_characters_in_texts_and_comments_are_allowed(tmp_path):
    (tmp_path / "a.toml").write_text('[store]\npath = "a\u00a0\u201cb\u201d"  # \u200b\n')
    document = read(tmp_path / "a.toml")
    assert isinstance(document, Document)
    assert document.tree["store"]["path"] == "a\u00a0\u201cb\u201d"
