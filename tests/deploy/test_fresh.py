"""The tutorials and the operator's guide, walked from its first line in a fresh clone in a Debian with nothing but Python,
make and certificates."""

from __future__ import annotations

import re
import time

import pytest

from tests.deploy import fresh_root
from tests.docs.pages import Shell, blocks
from tests.docs.test_tutorials import PAGES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(fresh_root.MISSING), reason="; ".join(fresh_root.MISSING)),
]


ASKS = re.compile(r"(until )?tailrace (query|streams|gaps)\b|import tailrace\n")
"""How a block begins that asks for what was collected."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_does_what_it_shows(page, root, record_testsuite_property):
    environ = fresh_root.downloads() | {"TAILRACE_ADMIN_LISTEN": "127.0.0.1:0"}
    begun = time.monotonic()
    asked = None
    with Shell([*fresh_root.enter(root, environ), "bash"]) as shell:
        for block in blocks(page):
            shell.read(block)
            if asked is None and ASKS.match(block.text):
                asked = time.monotonic() - begun
    record_testsuite_property(f"{page.stem}: seconds to the first query", round(asked))
