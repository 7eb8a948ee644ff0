"""Findings as they are printed."""

from __future__ import annotations

import json

from hypothesis import given, strategies as st

from tailrace.doctor import finding
from tailrace.doctor.finding import HostFinding, Severity, good, size

PROBLEM = HostFinding(
    check="disk",
    severity=Severity.PROBLEM,
    what="The disk is full.",
    why="Nothing fits.",
    commands=["df -h /a/very/long/path" + "/and/on" * 20, "rm \x1b[31mred"],
    figures={"free_bytes": 0},
)
ADVICE = HostFinding(
    check="clock", severity=Severity.ADVICE, what="It is late.", why="You may sleep."
)
GOOD = good("udp rate", "It is fine.", per_second=1)


def lines(*findings, width=80):
    return list(finding.text([*findings], width=width))


def test_problems_come_first_and_what_is_good_last():
    assert lines(GOOD, ADVICE, PROBLEM) == [
        "",
        "problem  disk: The disk is full.",
        "         Nothing fits.",
        f"           {PROBLEM.commands[0]}",
        "           rm \\x1b[31mred",
        "",
        "advice   clock: It is late.",
        "         You may sleep.",
        "",
        "good     udp rate: It is fine.",
        "",
        "1 problem, 1 piece of advice.",
    ]


def test_the_last_line_sums_up():
    assert lines(GOOD)[-1] == "Nothing to change."
    assert lines(PROBLEM, PROBLEM)[-1] == "2 problems."
    assert lines(ADVICE, ADVICE)[-1] == "No problem, 2 pieces of advice."


def test_only_the_severity_is_in_colour():
    text = list(finding.text([ADVICE], width=80, style=lambda word, severity: f"<{word.strip()}>"))
    assert text[1] == "<advice>  clock: It is late."


@given(
    st.lists(st.text(st.characters(codec="ascii", categories=["L", "N"]), max_size=50)),
    st.integers(min_value=40, max_value=120),
)
def test_sentences_fit_the_width_and_lose_no_word(words, width):
    sentence = " ".join(words)
    finding = HostFinding(check="x", severity=Severity.ADVICE, what=sentence, why="")
    printed = lines(finding, width=width)[1:-2]
    assert " ".join(printed).split() == ["advice", "x:", *sentence.split()]
    for line in printed:
        assert len(line) <= width or len(line.split()[-1]) > width - 20


def test_the_json_form_is_one_object():
    document = json.loads(
        finding.as_json([PROBLEM, GOOD], config="a.toml", store="s3://x", spool="/spool")
    )
    assert document["findings"][0] == {
        "check": "disk",
        "severity": "problem",
        "what": PROBLEM.what,
        "why": PROBLEM.why,
        "commands": PROBLEM.commands,
        "figures": {"free_bytes": 0},
    }
    assert document["findings"][1]["commands"] == []
    assert {
        name: document[name] for name in ("config", "store", "spool", "problems", "advice")
    } == {
        "config": "a.toml",
        "store": "s3://x",
        "spool": "/spool",
        "problems": 1,
        "advice": 0,
    }


def test_sizes_are_short():
    assert [size(n) for n in (0, 1023, 1024, 1536, 5 * 2**20, 79 * 2**30 + 2**29)] == [
        "0 B", "1023 B", "1 KiB", "1.5 KiB", "5 MiB", "79.5 GiB",
    ]  # fmt: skip
