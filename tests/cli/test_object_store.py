"""Commands on a table behind a URL whose server is slow: their ends, as interpreters of their own."""

from __future__ import annotations

import pytest

from tests.cli.command import run
from tests.query.tables import make, row
from tests.store.s3_server import RunningS3

FILES = 20


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """The URL of a table whose files come late, and the variables for it."""
    with RunningS3() as server:
        commits = [[row(seq=n, offset=n, start=n, end=n + 1)] for n in range(FILES)]
        url = "s3://bucket/slow"
        server.upload(make(tmp_path_factory.mktemp("slow"), *commits), url)
        server.misbehave(delay=0.1)
        yield url, server.options


@pytest.mark.parametrize(
    "arguments",
    [
        ["query", "SELECT 1 AS n"],
        ["query", "SELECT count(*) AS n FROM events"],
        ["streams"],
        ["gaps"],
        ["stats"],
    ],
    ids=" ".join,
)
def test_a_command_ends_while_files_are_still_read_ahead(slow, arguments):
    url, variables = slow
    command, *rest = arguments
    run(command, "--store", url, *rest, variables=variables, executable=True)
