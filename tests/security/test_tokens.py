"""Files of tokens: what is accepted, and what is said of files that are none."""

from __future__ import annotations

import pytest

from tailrace.security.guard import TOKENS_MAX, Tokens, UnusableError
from tests.security.authority import replace

ONE, OTHER = b"0123456789abcdef", b"fedcba9876543210-and-more"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "tokens"
    replace(path, b"# clients\n" + ONE + b"\n\n  " + OTHER + b" \r\n")
    return path


@pytest.fixture
def tokens(path, clock):
    return Tokens(path, clock=clock)


def refusal(path, clock, content):
    replace(path, content)
    with pytest.raises(UnusableError) as caught:
        Tokens(path, clock=clock)
    assert caught.value.path == path
    return caught.value.message


def test_every_token_of_the_file_is_accepted_and_nothing_else(tokens):
    assert tokens.accepts(ONE)
    assert tokens.accepts(OTHER)
    for wrong in (b"", b"#", b"# clients", ONE[:-1], ONE + b"0", ONE + b"\n", b" " + ONE, ONE.upper(), b"\xff"):  # fmt: skip
        assert not tokens.accepts(wrong)


def test_a_new_file_counts_from_the_next_look_on(tokens, path, clock):
    replace(path, OTHER + b"\n")
    assert tokens.accepts(ONE)
    clock.seconds += 1
    assert not tokens.accepts(ONE)
    assert tokens.accepts(OTHER)
    assert tokens.problem is None


@pytest.mark.parametrize(
    "content", [b"", b"# nobody\n", b"short\n", ONE + b"\nspaces in it, too many\n"]
)
def test_a_new_file_that_is_none_is_not_used_and_said(tokens, path, clock, content):
    replace(path, content)
    clock.seconds += 1
    assert tokens.accepts(ONE)
    assert tokens.problem.startswith(f"{path}: ")
    assert tokens.problem.endswith("the earlier content is still used")
    path.unlink()
    clock.seconds += 1
    assert tokens.accepts(ONE)
    assert "No such file" in tokens.problem
    replace(path, OTHER)
    clock.seconds += 1
    assert tokens.problem is None
    assert not tokens.accepts(ONE)


def test_what_is_said_never_shows_a_token(path, clock):
    assert refusal(path, clock, b"# \n\nsecret\n") == (
        "line 3 is a token of 6 characters; allowed: 16 to 256"
    )
    assert refusal(path, clock, b"x" * 257) == (
        "line 1 is a token of 257 characters; allowed: 16 to 256"
    )
    assert refusal(path, clock, ONE + b"\n" + b"\xffsecret" * 4) == (
        "line 2 is not a token; allowed: printable ASCII characters without spaces"
    )
    assert refusal(path, clock, b"\n#\n") == "has no tokens"
    assert refusal(path, clock, (ONE + b"\n") * (TOKENS_MAX + 1)) == "has more than 1024 tokens"
    assert refusal(path, clock, ONE * 2**17) == "is larger than 1048576 bytes"


def test_a_file_that_everybody_can_read_is_refused(path, clock):
    path.chmod(0o644)
    with pytest.raises(
        UnusableError, match="can be read by every user of this host; run chmod o-r"
    ):
        Tokens(path, clock=clock)


def test_a_file_that_an_editor_of_another_system_saved(path, clock):
    """PowerShell writes a byte order mark, or UTF-16."""
    replace(path, b"\xef\xbb\xbf" + ONE + b"\r\n# gr\xf6\xdfer\r\n")
    assert Tokens(path, clock=clock).accepts(ONE)
    assert "is UTF-16" in refusal(path, clock, ONE.decode().encode("utf-16"))
    assert "zero bytes" in refusal(path, clock, bytes(40))
