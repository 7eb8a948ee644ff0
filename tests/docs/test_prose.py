"""Docstrings say what a function does, and name only what exists."""

from __future__ import annotations

from tests.docs.prose import ROOT, docstrings, unknown_names

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
