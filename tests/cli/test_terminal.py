"""Nothing that a terminal obeys reaches it from the outside, whichever command shows it: each one runs on
a terminal, over a store, files, settings and arguments that are hostile wherever they may be. Nor does a command send
colours to a user who wants none, or any escape sequence to a pipe."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.command import COMMAND, ENVIRONMENT, on_terminal
from tests.program import run
from tests.query.tables import gap, make, row, session

ATTACK = "\x1b[2J\x1b]0;title\x07\x9b31m\x7f\r\u202e\u2066\u200f\u061c\u2028e"
"""Clears the screen, sets a title, begins a C1 sequence, rubs out, returns, turns the direction."""

OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
OURS = re.compile("\x1b\\[(0|1|3[1-7])?m|\r\x1b\\[Kasking [^\r]*|\r\x1b\\[K")
"""Our colours, and the line that says that a statement takes time."""


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    return named(tmp_path_factory.mktemp("hostile"), ATTACK)


@pytest.fixture(scope="module")
def harmless(tmp_path_factory):
    return named(tmp_path_factory.mktemp("harmless"), "word")


def named(directory, text):
    """Return the things that the commands below name: a store, a configuration and files, each with this text wherever
    it may be.
    """
    values = {"source": f"s{text}", "session": f"x{text}", "stream": f"t{text}"}
    rows = [
        session("open", opened=1, peer=text, **{k: values[k] for k in ("source", "session")}),
        session(
            "tailrace.session",
            rank=0,
            node=text,
            job=text,
            session=values["session"],
            source=values["source"],
        ),
        row(name=f"n{text}", seq=0, start=1, end=2, attributes={"a": text}, **values),
        row(name="=1+1", seq=1, start=1, end=2, offset=1, **values),
        gap(2, 5, reason=f"r{text}", offset=2, **values),
    ]
    about = {"collector": text, "host": text, "state": text, "conditions": text}
    own = {"source": "tailrace", "format": "tailrace", "stream": "heartbeat"}
    rows.append(row("instant", name="heartbeat", seq=0, time=1, start=1, attributes=about, **own))
    make(directory / "store", rows)
    config = directory / "bad.toml"
    config.write_text(json.dumps(f"k{text}", ensure_ascii=True) + " = 1\n[tcp]\n")
    syntax = directory / f"syn{text}tax.toml"
    syntax.write_text(f"a = {text}\n")
    trace = directory / f"trace{text}.heph"
    trace.write_bytes(text.encode() * 20)
    certificate = directory / f"certificate{text}.json"
    certificate.write_text(json.dumps({"x": text}))
    return {
        "store": directory / "store",
        "config": config,
        "syntax": syntax,
        "trace": trace,
        "certificate": certificate,
        "new": directory / "new",
        "missing": directory / f"no{text}such",
        "attack": text,
    }


QUERY = ("query", "--store", "{store}")
SQL = 'FROM events ORDER BY "offset"'
FORMS = [
    (0, *QUERY, SQL),
    (0, *QUERY, "--csv", SQL),
    (0, *QUERY, "--csv-safe", SQL),
    (0, *QUERY, "--json", SQL),
    (0, *QUERY, "SELECT 1 AS \"{attack}\", '{attack}'"),
    (0, *QUERY, "--csv", "SELECT '{attack}' AS \"{attack}\""),
    (1, *QUERY, "SELECT '{attack}'::INT"),
    (1, *QUERY, "SELECT error('{attack}')"),
    (1, *QUERY, 'SELECT "{attack}" FROM events'),
    (2, *QUERY, "--source", "{attack}", "SELECT 1"),
    (2, *QUERY, "--memory", "{attack}", "SELECT 1"),
    (2, "query", "--store", "{missing}", "SELECT 1"),
    (1, "top", "--store", "{store}"),
    (2, "top", "--store", "{missing}", "--json"),
    (0, "collectors", "--store", "{store}"),
    (0, "collectors", "--store", "{store}", "--json"),
    (0, "collectors", "--store", "{store}", "--metrics"),
    (2, "collectors", "--store", "{missing}"),
    (2, "collectors", "--store", "{store}", "--listen", "{attack}"),
    (0, "streams", "--store", "{store}"),
    (0, "streams", "--store", "{store}", "--json"),
    (2, "streams", "--store", "{store}", "--session", "{attack}"),
    (0, "gaps", "--store", "{store}"),
    (0, "gaps", "--store", "{store}", "--json"),
    (0, "stats", "--store", "{store}"),
    (0, "stats", "--store", "{store}", "--by", "attributes.a", "--by", "source", "--json"),
    (0, "stats", "--store", "{store}", "--by", "attributes.{attack}"),
    (2, "stats", "--store", "{store}", "--by", "{attack}"),
    (0, "diff", "{store}", "{store}"),
    (0, "diff", "{store}", "{store}", "--json"),
    (2, "diff", "{store}", "{store}", "--name", "{attack}"),
    (2, "diff", "{missing}", "{store}"),
    (1, "diff", "{certificate}", "{store}"),
    (2, "view", "{missing}"),
    (2, "view", "--listen", "{attack}", "{store}"),
    (2, "view", "--store", "{store}", "{attack}"),
    (5, "view", "--unix", "{missing}/x", "{store}"),
    (0, "export", "--store", "{store}", "--to", "csv", "-o", "{attack}.csv"),
    (2, "export", "--store", "{store}", "--to", "csv", "-o", "x.csv", "--source", "{attack}"),
    (2, "export", "--store", "{store}", "--to", "{attack}", "-o", "x.csv"),
    (0, "follow", "--store", "{store}", "--from-start", "--lines", "4"),
    (0, "follow", "--store", "{store}", "--from-start", "--lines", "4", "--json"),
    (2, "check", "{config}"),
    (2, "check", "{syntax}"),
    (2, "check", "{missing}"),
    (2, "serve", "--config", "{config}"),
    (2, "serve", "--config", "{missing}"),
    (None, "import", "--store", "{new}", "{trace}"),
    (None, "import", "--store", "{new}", "{missing}"),
    (None, "verdict", "{trace}"),
    (None, "verdict", "{missing}"),
    (None, "verify", "{certificate}", "--store", "{store}"),
    (None, "verify", "{missing}"),
    (None, "merge", "{store}", "--into", "{new}"),
    (None, "merge", "{missing}", "--into", "{new}"),
    (None, "merge", "{certificate}", "--into", "{missing}"),
    (0, "ranks", "--store", "{store}"),
    (0, "ranks", "--store", "{store}", "--json"),
    (2, "ranks", "--store", "{missing}"),
    (None, "upkeep", "--store", "{missing}"),
    (None, "doctor", "--quick", "--store", "{missing}"),
    (2, "doctor", "--config", "{config}"),
    (None, "bundle", "--config", "{config}"),
    (None, "run", "--config", "{missing}", "--", "true"),
    (None, "run", "--require-trace", "--store", "{new}", "--", "{missing}"),
    (2, "demo", "--{attack}"),
    (2, "completion", "{attack}"),
    (2, "{attack}"),
]


@pytest.mark.parametrize("form", FORMS, ids=[" ".join(form[1:]) for form in FORMS])
def test_no_command_prints_what_a_terminal_obeys(places, form, tmp_path):
    code, *arguments = form
    given = [argument.format(**places) for argument in arguments]
    status, printed = on_terminal(*given, cwd=tmp_path)
    assert printed.strip()
    assert OBEYED.findall(OURS.sub("", printed)) == []
    assert code in {None, status}, printed


def test_every_command_is_among_them():
    from tailrace.cli.commands import COMMANDS

    assert {form[1] for form in FORMS} >= set(COMMANDS)


ONE_EACH = list({form[1]: form[1:] for form in reversed(FORMS) if form[0] in {0, None}}.values())
"""The first form of each command that prints what was asked for."""
TRACES = str(Path(__file__).parents[1] / "vectors/dftracer/traces")
COLOUR = re.compile("\x1b\\[[0-9;:]*m")


@pytest.mark.parametrize("form", ONE_EACH, ids=[form[0] for form in ONE_EACH])
def test_a_terminal_gets_no_colours_if_its_user_wants_none(harmless, form, tmp_path, monkeypatch):
    monkeypatch.setitem(ENVIRONMENT, "NO_COLOR", "1")
    given = [argument.format(**harmless) for argument in form]
    _, printed = on_terminal(*given, cwd=tmp_path)
    assert printed.strip()
    assert COLOUR.findall(printed) == []


@pytest.mark.parametrize("form", ONE_EACH, ids=[form[0] for form in ONE_EACH])
def test_a_pipe_gets_no_escape_sequence(harmless, form, tmp_path):
    given = [argument.format(**harmless) for argument in form]
    done = run([*COMMAND, *given], env=ENVIRONMENT, cwd=tmp_path, capture_output=True, check=False)
    assert done.stdout + done.stderr
    assert b"\x1b" not in done.stdout + done.stderr


def test_there_are_colours_to_leave_out(harmless):
    """Otherwise the tests above show nothing."""
    for command in ("query", "doctor"):
        (form,) = (form for form in ONE_EACH if form[0] == command)
        given = [argument.format(**harmless) for argument in form]
        assert COLOUR.search(on_terminal(*given)[1]), command


@pytest.mark.parametrize("form", [
    (*QUERY, "--timeout", "3 s", "SELECT count(*) FROM range(100_000_000_000) WHERE hash(range) = 1"),
    ("export", "--store", "{store}", "--to", "csv", "-o", "-"),
    ("import", "--store", "store", TRACES),
    ("verdict", TRACES),
], ids=lambda form: form[0])  # fmt: skip
def test_progress_is_on_standard_error_alone(harmless, form, tmp_path):
    given = [argument.format(**harmless) for argument in form]
    with (tmp_path / "rows").open("wb") as rows:
        _, shown = on_terminal(*given, cwd=tmp_path, stdout=rows)
    assert "\r\x1b[" in shown or "\x1b[2K" in shown, shown
    assert b"\x1b" not in (tmp_path / "rows").read_bytes()


def test_the_progress_of_an_import_is_still_seen(places, tmp_path):
    """Our own movements of the cursor pass; nothing that a file is called does."""
    (tmp_path / "t.heph").write_bytes(b"")
    _, printed = on_terminal("import", "--store", tmp_path / "store", tmp_path / "t.heph")
    assert "\\x1b" not in printed


def test_formulas_are_defused_where_that_is_asked_for(places):
    asked = (
        "SELECT '=1' AS \"@a\", '+1', '-1', '@x', e'\\tx', e'\\rx', -1 AS n, 'x=1' AS x, NULL AS z"
    )
    done = subprocess.run(
        [*COMMAND, "query", "--store", str(places["store"]), "--csv-safe", asked],
        env=ENVIRONMENT,
        capture_output=True,
        check=True,
    )
    heading, values = done.stdout.decode().split("\n", 1)
    assert heading.startswith("'@a,")
    assert values == "'=1,'+1,'-1,'@x,'\tx,\"'\rx\",-1,x=1,\n"
