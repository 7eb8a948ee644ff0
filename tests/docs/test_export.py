"""The page on exports does what it shows."""

from __future__ import annotations

import re
import shutil

from tailrace.export import DIRECTORIES, WRITERS
from tests.docs.pages import ROOT, Shell, blocks, environment

PAGE = ROOT / "docs/export.md"
WORK = "/tmp/tailrace-export"  # noqa: S108 - on the page; replaced here
LOG = "/tmp/tailrace-demo.log"  # noqa: S108 - likewise


def test_the_page_has_every_format():
    rows = re.findall(r"^\| (`[^|]+`) \|", PAGE.read_text(), re.MULTILINE)
    assert [name for row in rows for name in re.findall(r"`(\w+)`", row)] == [
        *WRITERS,
        *DIRECTORIES,
    ]


def test_the_page_does_what_it_shows(tmp_path):
    place = tmp_path / "work"
    shown = 0
    with Shell(environ=environment(tmp_path)) as shell:
        for block in blocks(PAGE):
            text = block.text.replace(WORK, str(place)).replace(LOG, str(tmp_path / "log"))
            shell.read(block._replace(text=text))
            shown += block.output is not None
    assert shown >= 6
    shutil.rmtree(place)
