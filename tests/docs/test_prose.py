"""Docstrings say what a function does, and name only what exists. Sentences name the actor first."""

from __future__ import annotations

import pytest

from tests.docs.prose import (
    PLAIN,
    ROOT,
    docstrings,
    misleading,
    misleading_strings,
    unknown_names,
)
from tests.docs.sentences import sentences

VERBS_LEAST = 0.95
"""The share of functions' docstrings that begin with a verb."""


def test_docstrings_begin_with_a_verb():
    found = list(docstrings())
    verbs = sum(one.begins_with_verb for one in found)
    assert verbs >= VERBS_LEAST * len(found), f"{verbs} of {len(found)}: python -m tests.docs.prose"


def test_what_is_named_exists():
    unknown = [f"{n.path.relative_to(ROOT)}:{n.line}: {n.quoted}" for n in unknown_names()]
    assert unknown == []


def test_a_name_that_is_nowhere_is_found(tmp_path):
    name = "x" * 20  # written nowhere as it is
    module = tmp_path / "module.py"
    module.write_text(f'"""See `{name}` and `ROOT`; `a | b` is no name."""\n')
    assert [unknown.quoted for unknown in unknown_names([str(module)])] == [name]


def test_so_is_one_in_a_kernel(tmp_path):
    name = "y" * 20  # written nowhere as it is
    kernel = tmp_path / "kernel.pyx"
    kernel.write_text(f'cdef int x  # See `{name}`\n"""See `ROOT`."""\n')
    assert [unknown.quoted for unknown in unknown_names([str(kernel)])] == [name]


def test_no_sentence_begins_like_a_question():
    found = [f"{s.path.relative_to(ROOT)}:{s.line}: {s.text}" for s in misleading()]
    assert found == []


def test_no_string_that_people_read_does():
    found = [f"{s.path.relative_to(ROOT)}:{s.line}: {s.text}" for s in misleading_strings()]
    assert found == []


@pytest.mark.parametrize("path", PLAIN)
def test_each_folder_has_sentences_to_read(path):
    home = ROOT / path
    files = (
        [home] if home.is_file() else [*home.rglob("*.md"), *home.rglob("*.py"), *home.rglob("*.h")]
    )
    assert any(True for file in files for _ in sentences(file))


PYTHON = '''"""First. What
wraps. Of
these, one. (Who) is in brackets."""

shown = """What a string says is no prose."""
call(
    "That is an argument"
)
# What is it? That is a
# comment; what
# That goes on.

def f():  # Of a line
    """What does f do?"""
    x = 1
    """What x is."""
'''
PAGE = """# What a heading says

| what | Who |
|---|---|
| `x`. That is a cell | a cell |

A line that wraps before
That word, and
1. What an item says
- **Of** emphasis: That too

```sh
# What code says
```

Whoever reads, reads. What now? `x` answers.
"""
SOURCE = """/* What a comment
 * says. That
 * wraps. */
int x; // Of x
char *text = "What a string says";
"""


def test_a_string_that_only_looks_like_a_question_is_found(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(PYTHON + STRINGS)
    found = [(s.line - PYTHON.count("\n"), s.text) for s in misleading_strings([str(path)])]
    assert [text for line, text in found if line > 0] == ["Of … bytes, none.", "That one."]
    assert [text for line, text in found if line <= 0] == [
        "What a string says is no prose.",
        "That is an argument",
    ]


STRINGS = """
raise ValueError(f"Of {size} bytes, none. What of that?" " It is one." " That one.")
"""


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("module.py", PYTHON, [1, 2, 3, 9, 13, 16]),
        ("kernel.pyx", "cdef int x  # Of x\n", [1]),
        ("README.md", PAGE, [1, 5, 9, 10, 10]),
        ("source.c", SOURCE, [1, 2, 4]),
    ],
)
def test_a_sentence_that_only_looks_like_a_question_is_found(name, text, lines, tmp_path):
    path = tmp_path / name
    path.write_text(text)
    assert sorted(sentence.line for sentence in misleading([str(path)])) == lines
