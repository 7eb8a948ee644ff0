"""Everything that the threat model names exists, and no limit of a listener is left out of it."""

from __future__ import annotations

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import msgspec
import pytest

from tailrace.config.schema import AdminConfig, Config, TailConfig, TcpConfig, UdpConfig, UnixConfig

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "collector/THREATS.md").read_text()
NAMED = re.findall(r"`([^`\n]+)`", PAGE)

TYPES = {"udp": UdpConfig, "tcp": TcpConfig, "unix": UnixConfig, "tail": TailConfig}
SECTIONS = {field.name: field.type for field in msgspec.structs.fields(Config)} | TYPES
KEY = re.compile(rf"({'|'.join(SECTIONS)})\.[a-z_]+")
GUARD = re.compile(
    r"tls_\w+|tokens|allow|open_to_all|mode|\w+_(max|max_size|timeout|rate)|max_size|session_size"
)


def keys_of(section):
    return {field.name for field in msgspec.structs.fields(SECTIONS[section])}


@cache
def functions_of(path):
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, kinds)}


def defences():
    """The rows of all tables but the first, which is about trust."""
    _, *tables = re.split(r"^\|---.*\n", PAGE, flags=re.MULTILINE)
    for table in tables[1:]:
        for line in table.split("\n\n")[0].splitlines():
            yield pytest.param(line, id=line.split("|")[1].strip()[:60])


@pytest.mark.parametrize("row", list(defences()))
def test_each_defence_is_shown_by_a_test(row):
    *_, shown, _ = row.split("|")
    tests = re.findall(r"`((?:clients/python/)?tests/[^`]+)::(test_[^`]+)`", shown)
    assert tests
    assert shown.count("`") == 2 * len(tests)
    for path, name in tests:
        assert name in functions_of(ROOT / path), f"{path}::{name}"


def test_every_file_that_is_named_exists():
    paths = [name.partition("::")[0] for name in NAMED if name.startswith("tests/")]
    assert paths
    for path in paths:
        assert (ROOT / path).is_file(), path


def test_every_key_that_is_named_exists():
    keys = [name for name in NAMED if KEY.fullmatch(name)]
    assert len(keys) > 30
    for key in keys:
        section, _, name = key.partition(".")
        assert name in keys_of(section), key


def test_every_constant_that_is_named_exists():
    constants = [name for name in NAMED if name.startswith("tailrace.")]
    assert constants
    for constant in constants:
        module, _, name = constant.rpartition(".")
        assert hasattr(importlib.import_module(module), name), constant


@pytest.mark.parametrize("section", ["udp", "tcp", "unix", "tail", "admin", "ledger", "quarantine"])
def test_no_limit_and_no_guard_is_left_out(section):
    """Those of a unix source that a TCP source has too are named there."""
    guards = {key for key in keys_of(section) if GUARD.fullmatch(key)}
    assert guards
    for key in guards:
        places = {f"{section}.{key}"} | ({f"tcp.{key}"} if section == "unix" else set())
        assert places & set(NAMED), f"{section}.{key}"


def test_the_admin_endpoint_has_the_guards_of_a_source():
    guards = {
        "tls_certificate",
        "tls_key",
        "tls_client_authority",
        "tokens",
        "allow",
        "open_to_all",
    }
    assert guards <= {field.name for field in msgspec.structs.fields(AdminConfig)}
    assert guards <= {field.name for field in msgspec.structs.fields(TcpConfig)}
