"""config/tailrace.toml and the schema say the same, and every example loads."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings, strategies as st

from tailrace.config.load import load
from tailrace.config.schema import DEFAULT_SOURCES, Config
from tailrace.configuration import transports
from tailrace.errors import ConfigError
from tests.docs.configuration import describe

CONFIG = Path(__file__).parents[2] / "config"
REFERENCE = CONFIG / "tailrace.toml"
EXAMPLES = sorted((CONFIG / "examples").glob("*.toml"))


class Written(NamedTuple):
    """A key of the reference: its value, whether it is put to use, and the comment above it."""

    value: object
    used: bool
    comment: str


def written() -> dict[tuple[str, str], Written]:
    """Every key by section; of sources, the first of each type stands for the type."""
    found: dict[tuple[str, str], Written] = {}
    section, comment = "", []
    for line in REFERENCE.read_text().splitlines():
        statement = line.removeprefix("#")
        if line.startswith("# "):
            comment.append(line.removeprefix("# "))
        elif header := re.fullmatch(r"\[(.*)\]", statement):
            section, comment = header[1], []
        elif statement:
            ((key, value),) = tomllib.loads(statement).items()
            if key == "type":
                section = f"sources ({value})"
            found.setdefault((section, key), Written(value, line == statement, " ".join(comment)))
            comment = []
        else:
            comment = []
    return found


def test_the_reference_has_the_keys_of_the_schema_and_no_others():
    assert [*written()] == [(key.section, key.key) for key in describe()]


@pytest.mark.parametrize("key", describe(), ids=str)
def test_the_reference_says_what_a_key_means_and_its_default(key):
    there = written()[key.section, key.key]
    assert key.meaning in there.comment
    assert key.meaning.endswith(".")
    if key.default == "none":
        assert not there.used
    elif key.default:
        assert there.value == tomllib.loads(f"key = {key.default}")["key"]


def test_the_reference_is_the_built_in_configuration():
    reference = load(REFERENCE, environ={}, flags={}, formats=transports)
    assert reference.config == Config()
    assert [*reference.config.sources] == [*DEFAULT_SOURCES]
    assert reference.sha256 == load(None, environ={}, flags={}, formats=transports).sha256


def test_what_the_reference_leaves_to_be_put_to_use_loads(tmp_path):
    path = tmp_path / "all.toml"
    path.write_text(re.sub(r"(?m)^#(?! |$)", "", REFERENCE.read_text()))
    config = load(path, environ={}, flags={}, formats=transports).config
    assert config.sources["runs"].format == "ovni"
    assert config.sources["heph_unix"].mode == "0600"
    assert config.store.retention_age == 90 * 86_400


def test_there_are_examples():
    assert [path.name for path in EXAMPLES] == ["cluster-node.toml", "laptop.toml"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_loads_and_says_only_what_differs(path):
    config = load(path, environ={}, flags={}, formats=transports).config
    assert config.sources
    for section, keys in tomllib.loads(path.read_text()).items():
        if section != "sources":
            for key in keys:
                assert getattr(getattr(config, section), key) != getattr(
                    getattr(Config(), section), key
                ), f"[{section}] {key} is the default"


SPLICES = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ["[", "]", "#", '"', "'''", "=", "\n", "\r\n", "0", "-1", "1e400", "nan", "true", "[[x]]\n",
         "[sources]\n", "type = 'tail'\n", "127.0.0.1:7701", "1979-05-27", "{}", '"5"', "\\u0000"]
    ),
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 40), SPLICES), min_size=1, max_size=4))
@example([(0.0, 10**6, "")])
@example([(0.0, 10**6, "[admin]\nlisten = '127.0.0.1:7701'")])
def test_any_damage_to_the_reference_loads_or_is_named_with_file_and_line(
    tmp_path_factory, mutations
):
    text = re.sub(r"(?m)^#(?! |$)", "", REFERENCE.read_text())
    for place, cut, splice in mutations:
        at = int(place * len(text))
        text = text[:at] + splice + text[at + cut :]
    path = tmp_path_factory.getbasetemp() / "damaged.toml"
    path.write_bytes(text.encode(errors="surrogatepass"))
    problems = []
    try:
        assert load(path, environ={}, flags={}, formats=transports).config
    except ConfigError as error:
        problems = error.problems
    for problem in problems:
        found = re.fullmatch(rf"{re.escape(str(path))}:(\d+): .+", problem)
        assert found, problem
        assert 1 <= int(found[1]) <= text.count("\n") + 1
