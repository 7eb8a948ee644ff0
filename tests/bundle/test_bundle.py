"""A bundle of a real daemon, of one that is gone, and of what is broken; and what is in none of them."""

from __future__ import annotations

import json
import socket
import stat
import tarfile
import time

import pytest

from tailrace.bundle import archive
from tailrace.bundle.archive import PARTS, BundlePart, Subject
from tailrace.bundle.redaction import Redaction
from tests import program
from tests.system.collector import until

OPTION = "option-5e1c0de"
ENVIRONMENT = "variable-5e1c0de"
CLIENT = "client-5e1c0de"
TOKEN = "token-5e1c0de-0123456789"  # noqa: S105 - planted
USERINFO = "userinfo-5e1c0de"
NAME = "name-5e1c0de"
ATTRIBUTE = "attribute-5e1c0de"
STREAM = "stream-5e1c0de"
GARBAGE = "garbage-5e1c0de"
SECRETS = (OPTION, ENVIRONMENT, CLIENT, TOKEN, USERINFO, NAME, ATTRIBUTE, STREAM, GARBAGE)

SOURCES = """
[sources.lines]
type = "tcp"
format = "jets"
listen = "127.0.0.1:0"
tokens = "{tokens}"
"""


def bundle(collector, *arguments):
    """The texts of a bundle, by name, and what the command printed."""
    path = collector.store.parent / f"{time.monotonic_ns()}.tar.gz"
    done = collector.cli("bundle", *arguments, "-o", str(path))
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with tarfile.open(path) as found:
        texts = {m.name.partition("/")[2]: found.extractfile(m).read().decode() for m in found}
    return texts, done.stdout


@pytest.fixture
def planted(collectors, tmp_path, monkeypatch):
    """A daemon that has secrets in every place, with events in its table and in its quarantine."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"# those who may\n{TOKEN}\n")
    tokens.chmod(0o600)
    for name, value in {
        "TAILRACE_STORE_OPTIONS_AWS_SECRET_ACCESS_KEY": ENVIRONMENT,
        "TAILRACE_TOKEN": CLIENT,
    }.items():
        monkeypatch.setenv(name, value)
    more = (
        f'tokens = "{tokens}"\n[store.options]\naws_access_key_id = "{OPTION}"\n'
        f'endpoint = "https://me:{USERINFO}@127.0.0.1/"\n'
        '[spool]\ncheckpoint_interval = "100 ms"\n'
    )
    collector = collectors(sources=SOURCES.format(tokens=tokens), more=more).start()
    with socket.create_connection(collector.address("lines")) as sock:
        sock.sendall(f"tailrace-token {TOKEN}\n".encode())
        sock.sendall(f'{{"{NAME}": "{ATTRIBUTE}", "id": "{STREAM}"}}\n'.encode() * 10)
        sock.sendall(f"{GARBAGE}\n".encode() * 3)

    def arrived():
        return any((collector.store / "quarantine").glob("*.frames"))

    until(arrived, "the garbage to be quarantined")
    until(lambda: any((collector.store / "spool").glob("*.checkpoint")), "a checkpoint")
    yield collector
    collector.stop()  # its status is not to be had without a token


def test_a_bundle_of_a_running_daemon_has_every_part_and_no_secret(planted):
    everything = b"".join(p.read_bytes() for p in planted.store.rglob("*") if p.is_file())
    assert GARBAGE.encode() in everything, "it was there to be found"
    texts, printed = bundle(planted, "--config", str(planted.config))
    assert {*texts} == {"README.txt", *(part.name for part in PARTS)}, printed
    for secret in SECRETS:
        for name, text in texts.items():
            assert secret not in text, name
        assert secret not in printed
    assert json.loads(texts["status.json"])["pid"] == planted.process.pid
    assert "tailrace_build_info" in texts["metrics.txt"]
    assert json.loads(texts["healthz.json"])["status"] == "ok"
    assert "source lines" in texts["log.txt"]
    config = json.loads(texts["configuration.json"])["effective"]
    assert config["store"]["options"]["aws_access_key_id"] == "REDACTED"
    assert "aws_secret_access_key" in config["store"]["options"]
    assert "TAILRACE_TOKEN=..." in texts["environment.txt"]
    assert "delta.checkpointInterval" in texts["table.json"]
    assert sum(day["rows"] for day in json.loads(texts["table.json"])["days"].values()) > 0
    assert json.loads(texts["quarantine.json"])["reasons"]
    assert sum(gap["gaps"] for gap in json.loads(texts["gaps.json"])) > 0
    for part in PARTS:
        assert part.name in texts["README.txt"]
        assert part.name in printed
    # And without a daemon: what it would say is named as missing.
    planted.stop()
    texts, printed = bundle(planted, "--config", str(planted.config))
    gone = {"status.json", "healthz.json", "metrics.txt", "log.txt"}
    assert {part.name for part in PARTS} - {*texts} == gone
    assert printed.count("no collector runs on this store") == len(gone)
    ledger = json.loads(texts["ledger.json"])["sources"]["lines"]["tally"]
    assert ledger["received"] == ledger["decoded"] + ledger["malformed"] > 0
    assert all(secret not in text for secret in SECRETS for text in texts.values())


def test_a_broken_configuration_and_a_broken_store_are_named(planted):
    planted.kill()
    text = planted.config.read_text()
    (first, *_) = sorted((planted.store / "events/_delta_log").glob("*.json"))
    first.write_bytes(b"\0" * 100)
    for checkpoint in (planted.store / "spool").glob("*.checkpoint"):
        checkpoint.write_bytes(b"torn")
    for broken in (f"{text}\n[sources.x", text.replace("jets", f"x{OPTION}")):
        planted.config.write_text(broken)
        texts, printed = bundle(planted, "--config", str(planted.config))
        assert json.loads(texts["configuration.json"])["problems"]
        for part in ("table.json", "ledger.json", "gaps.json"):
            assert part not in texts
            assert part in printed
        assert json.loads(texts["spool.json"])["sum"]["files"] > 0
        assert json.loads(texts["quarantine.json"])["reasons"]
        assert all(secret not in text for secret in SECRETS for text in texts.values())


def test_as_json_the_archives_parts_are_listed(tmp_path):
    path = tmp_path / "a.tar.gz"
    done = program.run(
        [*program.COMMAND, "bundle", "--store", tmp_path / "s", "-o", path, "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    said = json.loads(done.stdout)
    assert (said["archive"], said["bytes"]) == (str(path), path.stat().st_size)
    assert [part["name"] for part in said["parts"]] == [part.name for part in PARTS]
    assert all((part["bytes"] is None) != (part["failure"] is None) for part in said["parts"])
    with tarfile.open(path) as found:
        sizes = {member.name.partition("/")[2]: member.size for member in found}
    del sizes["README.txt"]
    assert {p["name"]: p["bytes"] for p in said["parts"] if p["bytes"] is not None} == sizes


def test_what_is_there_is_not_overwritten(tmp_path):
    there = tmp_path / "a.tar.gz"
    there.write_text("mine")
    done = program.run(
        [*program.COMMAND, "bundle", "--store", tmp_path / "s", "-o", there],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "File exists" in done.stderr
    assert there.read_text() == "mine"
    assert not (tmp_path / "s").exists(), "a look makes nothing"


def test_a_part_that_hangs_or_is_very_long_is_bounded(monkeypatch):
    def hang(_: Subject) -> str:
        time.sleep(30)
        return ""

    def fail(_: Subject) -> str:
        raise RuntimeError("\x1b[2J" + OPTION)

    parts = (
        BundlePart("hang", "It hangs.", hang),
        BundlePart("long", "It is long.", lambda _: "\u20ac" * archive.PART_BYTES),
        BundlePart("fail", "It fails.", fail),
    )
    monkeypatch.setattr(archive, "PARTS", parts)
    monkeypatch.setattr(archive, "PART_SECONDS", 0.2)
    hung, long, failed = archive.collect(None, Redaction([OPTION]))
    assert hung.text is None
    assert "took longer than 0.2 s" in archive.contents(hung)
    assert len(long.text.encode()) <= archive.PART_BYTES + 100
    assert failed.failure == "RuntimeError: \\x1b[2JREDACTED"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("s3://key:5ecr3t@bucket/x", "s3://REDACTED@bucket/x"),
        ("https://5ecr3t@h, http://h/a@b", "https://REDACTED@h, http://h/a@b"),
        ('{"a": "q\\"uo\\\\te"}', '{"a": "REDACTED"}'),
        ("plain me@home 10.0.0.1:80", "plain me@home 10.0.0.1:80"),
        ("abc", "abc"),
    ],
)
def test_redaction(text, clean):
    assert Redaction(['q"uo\\te', "abc"]).clean(text) == clean
