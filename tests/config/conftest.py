"""Load texts as configuration files."""

from __future__ import annotations

import pytest

from tailrace.config.load import load
from tailrace.configuration import transports
from tailrace.errors import ConfigError


@pytest.fixture
def loaded(tmp_path):
    """Return a function that loads a text: `(text, environ=…, flags=…, formats=…)` to a Loaded."""

    def load_text(text, *, environ=None, flags=None, formats=transports):
        path = tmp_path / "tailrace.toml"
        path.write_text(text)
        return load(path, environ=environ or {}, flags=flags or {}, formats=formats)

    return load_text


@pytest.fixture
def problems(loaded, tmp_path):
    """Return a function that returns all problems of a text, with FILE for the path of its file; none if it loads."""

    def find(text, **given):
        try:
            loaded(text, **given)
        except ConfigError as error:
            return [p.replace(f"{tmp_path}/tailrace.toml", "FILE") for p in error.problems]
        return []

    return find
