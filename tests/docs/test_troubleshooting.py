"""Each message on the page is one that the code has."""

from __future__ import annotations

import ast
import re

import pytest

from tests.docs.pages import ANYTHING, ROOT

MESSAGES = re.findall(r"^### `(.+)`$", (ROOT / "docs/troubleshooting.md").read_text(), re.MULTILINE)
HOLE = re.compile(r"%[-.\d]*[sdrf]")
LEAST_LETTERS = 9
"""Number of letters that a message has at least, so that it is found in one place."""


def messages():
    """Yield the texts in the code but for docstrings, with `…` for values."""
    for path in (ROOT / "collector/tailrace").rglob("*.py"):
        nodes = [*ast.walk(ast.parse(path.read_bytes()))]
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if id(node) in docstrings:
                continue
            if isinstance(node, ast.JoinedStr):
                parts = (
                    part.value if isinstance(part, ast.Constant) else ANYTHING
                    for part in node.values
                )
                yield "".join(parts)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield HOLE.sub(ANYTHING, node.value)


@pytest.fixture(scope="module")
def known():
    return [*messages()]


def is_like(message: str, text: str) -> bool:
    """Return whether a message is a text of the code, whose values may be at its ends."""
    words = ".*".join(re.escape(part) for part in message.split(ANYTHING))
    return re.search(words, text.replace("`", ""), re.DOTALL) is not None


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_is_one_of_the_code(known, message):
    assert sum(map(str.isalpha, message)) >= LEAST_LETTERS
    assert [text for text in known if is_like(message, text)]


def test_no_message_is_there_twice():
    assert len(set(MESSAGES)) == len(MESSAGES) > 15


@pytest.mark.parametrize("message", ["the disk is a melon: …", "…: not a Tailrace store; check"])
def test_a_message_that_no_code_has_is_found(known, message):
    assert not any(is_like(message, text) for text in known)
