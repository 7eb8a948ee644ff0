"""`tailrace doctor`, run as people run it."""

from __future__ import annotations

import json
import resource
import socket
import subprocess

import pytest
from click.testing import CliRunner

from tailrace.cli import support
from tests import program
from tests.cli.command import COMMAND, ENVIRONMENT
from tests.doctor.hosts import UNPRIVILEGED, without_privileges
from tests.doctor.object_store.lying import LyingS3

SOURCES = """
[admin]
listen = "127.0.0.1:0"
[sources.udp]
type = "udp"
format = "heph"
listen = "127.0.0.1:0"
receive_buffer = "64 KiB"
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "tailrace.toml"
    path.write_text(SOURCES)
    return path


@pytest.fixture
def doctor(tmp_path, config):
    """Run it on a store that is not there yet, and see that it exits with `code`."""
    if on_memory(tmp_path):
        pytest.skip("temporary files are in memory here, which is a problem that it finds")

    def run(*arguments, before=(), code=0, store=tmp_path / "store", **environ):
        kept = {n: v for n, v in ENVIRONMENT.items() if not n.startswith(("DFTRACER_", "OVNI_"))}
        command = [*before, *COMMAND, "doctor", "--config", config, "--store", store, *arguments]
        done = subprocess.run(
            command,
            env=kept | environ,
            capture_output=True, text=True, check=False, timeout=60,
            preexec_fn=enough_files,
        )  # fmt: skip
        assert done.stderr == ""
        assert done.returncode == code, done.stdout
        return done.stdout

    return run


def enough_files():
    """In the child: whatever the limits of who runs the tests."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def found(output, check):
    return [f for f in json.loads(output)["findings"] if f["check"] == check]


def problems(output):
    return [f["what"] for f in json.loads(output)["findings"] if f["severity"] == "problem"]


def on_memory(tmp_path):
    kinds = subprocess.run(
        ["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True, check=True
    )
    return kinds.stdout.strip() in {"tmpfs", "ramfs"}


def test_it_looks_at_everything_and_leaves_nothing(doctor, tmp_path, config):
    before = sorted(tmp_path.rglob("*"))
    document = json.loads(doctor("--json"))
    assert sorted(tmp_path.rglob("*")) == before
    assert {f["check"] for f in document["findings"]} == {
        "addresses", "directories", "disk space", "durability", "receive buffer", "drops",
        "open files", "producers", "disk speed", "udp rate", "clock",
    }  # fmt: skip
    assert document["config"] == str(config)
    assert document["store"] == str(tmp_path / "store")
    assert document["spool"] == str(tmp_path / "store" / "spool")
    (speed,) = found(json.dumps(document), "disk speed")
    assert speed["figures"]["mb_per_s"] > 0
    for finding in document["findings"]:
        assert finding["what"].endswith((".", "now."))
        if finding["severity"] != "good":
            assert finding["why"]
            assert finding["commands"]


def test_text_fits_eighty_columns_but_for_commands(doctor):
    text = doctor("--quick", COLUMNS="200", OVNI_TRACEDIR="/nowhere")
    assert "export TAILRACE_SOURCES_OVNI_TYPE=tail" in text
    for line in text.splitlines():
        is_command = line.startswith(" " * 11)
        assert len(line) <= 80 or is_command or len(line.split()) == 1
    assert "Not measured, because of --quick." in text
    assert "\x1b" not in text


def test_every_command_it_prints_is_one_for_a_shell(doctor):
    environ = {"OVNI_TRACEDIR": "/no where/it's", "DFTRACER_ENABLE": "1"}
    text = doctor("--json", "--quick", **environ)
    commands = [c for f in json.loads(text)["findings"] for c in f["commands"]]
    assert len(commands) > 3
    for command in commands:
        subprocess.run(["bash", "-n", "-c", command], check=True, timeout=60)


def test_a_taken_address_is_a_problem_and_exit_code_one(doctor):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        output = doctor("--json", "--quick", code=1, TAILRACE_SOURCES_UDP_LISTEN=listen)
    assert f"udp cannot listen on {listen}: another process does." in problems(output)


def test_a_wrong_configuration_is_exit_code_two(tmp_path):
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("[stor]\n")
    done = program.run(
        [*COMMAND, "doctor", "--config", wrong],
        env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{wrong}:1: stor: unknown section; did you mean store?\n"


def test_a_url_as_store_has_its_endpoint_tested(doctor, tmp_path):
    with LyingS3() as server:
        variables = {f"TAILRACE_STORE_OPTIONS_{n.upper()}": v for n, v in server.options.items()}
        arguments = {"store": "s3://bucket/a", "XDG_DATA_HOME": str(tmp_path), **variables}
        good = doctor("--json", "--quick", **arguments)
        text = doctor("--quick", **arguments)
    assert found(good, "conditional puts")[0]["figures"]["keys_with_one_winner"] == 50
    assert found(good, "endpoint clean-up")[0]["severity"] == "good"
    assert "8 writers raced for 50 keys: exactly one won each." in " ".join(text.split())
    assert server.objects == {}


def test_without_obstore_it_names_what_to_install(monkeypatch, config):
    monkeypatch.setattr(support, "find_spec", lambda name: None)
    arguments = ["--config", str(config), "--store", "s3://bucket/a", "--json", "--quick"]
    done = CliRunner().invoke(support.doctor_command, arguments)
    (endpoint,) = found(done.stdout, "endpoint")
    assert done.exit_code == 1
    assert endpoint["what"] == "Testing an object store needs the package obstore."
    assert endpoint["commands"] == ["python -m pip install 'tailrace[object-store]'"]


def test_an_endpoint_that_lies_is_exit_code_one(doctor, tmp_path):
    with LyingS3(ignores=True) as server:
        variables = {n.upper(): v for n, v in server.options.items()}
        arguments = {"store": "s3://bucket/a", "XDG_DATA_HOME": str(tmp_path), **variables}
        output = doctor("--json", "--quick", code=1, **arguments)
    assert [f["check"] for f in json.loads(output)["findings"] if f["severity"] == "problem"] == [
        "conditional puts"
    ]


def test_a_configured_url_is_tested_only_when_it_is_asked_for(tmp_path, config):
    with LyingS3() as server:
        options = "".join(f'{n} = "{v}"\n' for n, v in server.options.items())
        config.write_text(f'{SOURCES}[store]\npath = "s3://bucket/a"\n[store.options]\n{options}')
        done = program.run(
            [*COMMAND, "doctor", "--config", config, "--json", "--quick"],
            env=ENVIRONMENT | {"XDG_DATA_HOME": str(tmp_path)},
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
    (endpoint,) = found(done.stdout, "endpoint")
    assert "Not tested" in endpoint["what"]
    assert server.asked == []


@without_privileges
def test_a_store_of_somebody_else_is_a_problem(doctor, tmp_path):
    store = tmp_path / "store"
    store.mkdir()
    (store / "lock").touch()
    store.chmod(0o500)
    try:
        output = doctor("--json", "--quick", before=UNPRIVILEGED, code=1)
        (store / "lock").chmod(0o400)
        store.chmod(0o700)
        locked = doctor("--json", "--quick", before=UNPRIVILEGED, code=1)
    finally:
        store.chmod(0o700)
    assert f"This user may not write to {store}, which belongs to the store." in problems(output)
    assert f"This user may not write to {store}/lock, which belongs to the store." in problems(
        locked
    )


@without_privileges
def test_a_user_without_privileges_gets_the_same_looks(doctor):
    text = doctor("--json", "--quick", before=UNPRIVILEGED)
    buffers = [f for f in found(text, "receive buffer") if "granted_bytes" in f["figures"]]
    assert buffers[0]["figures"]["granted_bytes"] == buffers[0]["figures"]["unprivileged_bytes"]


def test_a_running_collector_is_named_and_left_alone(collectors):
    collector = collectors(sources=SOURCES.replace('[admin]\nlisten = "127.0.0.1:0"\n', ""))
    collector.start()
    before = collector.status()["sources"]["udp"]
    done = collector.cli("doctor", "--config", collector.config, "--json")
    assert "Traceback" not in done.stderr
    after = collector.status()["sources"]["udp"]
    assert after == before
    (running,) = found(done.stdout, "addresses")
    assert running["figures"] == {"pid": collector.process.pid}
    assert f"udp {collector.ports['sources']['udp']}" in running["what"]
    for check in ("disk speed", "udp rate"):
        assert "Not measured, so as not to disturb" in found(done.stdout, check)[0]["what"]
    assert any("udp's socket has dropped nothing" in f["what"] for f in found(done.stdout, "drops"))
    collector.kill()
    gone = collector.cli("doctor", "--config", collector.config, "--json", "--quick")
    assert "Free to listen on" in found(gone.stdout, "addresses")[0]["what"]
