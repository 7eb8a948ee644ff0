from __future__ import annotations

import shlex

import pytest
import trio
from hypothesis import given, strategies as st

from tailrace.demo.tour import as_typed, environment, tailrace
from tailrace.errors import TailraceError


@given(st.lists(st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))))
def test_a_shell_reads_what_is_shown_as_what_was_run(words):
    assert shlex.split(as_typed(*words)) == words


def test_sql_is_shown_without_a_thicket_of_quotes():
    assert as_typed("query", "SELECT 'x'") == "query \"SELECT 'x'\""


def test_settings_in_the_environment_are_left_out(monkeypatch):
    monkeypatch.setenv("TAILRACE_STORE_PATH", "elsewhere")
    monkeypatch.setenv("SOMETHING_ELSE", "kept")
    assert "TAILRACE_STORE_PATH" not in environment()
    assert environment()["SOMETHING_ELSE"] == "kept"


def test_a_command_that_fails_is_an_error_with_its_complaint():
    with pytest.raises(TailraceError, match=r"(?s)^tailrace query --store .*failed:\n.*nowhere"):
        trio.run(tailrace, "query", "--store", "/nowhere", "SELECT 1")
    assert trio.run(tailrace, "--version").startswith("tailrace ")
