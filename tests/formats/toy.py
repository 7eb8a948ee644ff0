"""The toy format of docs/ADD_A_FORMAT.md: the page's Python blocks, in their order, are its module.

Tests of files use it because it brings documents, names, gaps and unreadable lines in few bytes.
"""

from __future__ import annotations

import re
from pathlib import Path

from tailrace.decoding.contract import Format

PAGE = Path(__file__).parents[2] / "docs/ADD_A_FORMAT.md"
SOURCE = "\n\n".join(
    re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
)

FORMAT: Format
exec(compile(SOURCE, str(PAGE), "exec"), globals())  # noqa: S102 - our own page
