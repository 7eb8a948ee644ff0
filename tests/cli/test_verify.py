"""`tailrace verify STORE`: its lines, its JSON and its exit codes. Certificates: `tests/run`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tailrace.clock import SystemClock
from tailrace.config.schema import StoreConfig
from tailrace.store.log import Journal
from tailrace.store.table import Table
from tests import program
from tests.cli.command import COMMAND, ENVIRONMENT, run
from tests.store.writer import numbered


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "store"
    table = Table.open(
        str(path), options={}, collector="one", config=StoreConfig(), clock=SystemClock(),
        refills=lambda position: False,
    )  # fmt: skip
    for number in range(3):
        table.land(table.prepare(numbered("s", 10 * number, 10)), number + 1)
    return path


def _data(store):
    return sorted(Path(uri) for uri in DeltaTable(str(store / "events")).file_uris())


def test_a_whole_store_is_good(store):
    text = run("verify", store).decode()
    assert "3 data files: 3 verified, 0 unverifiable" in text


def test_each_damaged_file_has_a_line_and_the_exit_code_is_1(store):
    flipped, gone, _ = _data(store)
    data = bytearray(flipped.read_bytes())
    data[len(data) // 2] ^= 4
    flipped.write_bytes(data)
    gone.unlink()
    run("verify", store, code=1)
    document = json.loads(_failing_output("verify", "--json", store))
    assert (document["files"], document["verified"], document["unverifiable"]) == (3, 1, 0)
    assert {each["path"]: each["lost"] for each in document["damage"]} == {
        str(flipped): "10 rows",
        str(gone): "10 rows",
    }
    lines = _failing_output("verify", store).splitlines()
    [line] = [line for line in lines if line.startswith(str(flipped))]
    assert "another checksum" in line
    assert f"{gone}: is missing; lost: 10 rows" in lines


def _failing_output(*arguments):
    done = program.run(
        [*COMMAND, *map(str, arguments)], env=ENVIRONMENT, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    return done.stdout


def test_files_without_a_checksum_are_said_to_be_unverifiable(store):
    Journal(store / "events").path.unlink()
    document = json.loads(run("verify", "--json", store))
    assert (document["verified"], document["unverifiable"]) == (0, 3)


def test_a_store_without_table_is_an_error(tmp_path):
    assert "not a Tailrace store" in run("verify", tmp_path, code=1)


def test_options_for_certificates_are_refused(store):
    assert "apply to certificates" in run("verify", "--key", "00", store, code=2)
