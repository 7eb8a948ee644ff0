"""`tailrace check`, run as people run it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tailrace
from tests import program
from tests.security.authority import PAST, Authority, replace

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "config/tailrace.toml"
COLLECTOR = Path(tailrace.__path__[0]).parent


@pytest.fixture
def environ(tmp_path):
    """An environment that says nothing of Tailrace."""
    return program.environment() | {"PYTHONPATH": str(COLLECTOR), "XDG_DATA_HOME": str(tmp_path)}


@pytest.fixture
def check(environ):
    """Run `tailrace check` with these arguments and variables to its end."""

    def run(*arguments, **more):
        return program.run(
            [*program.COMMAND, "check", *map(str, arguments)],
            env=environ | more,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return run


@pytest.fixture
def wrong(tmp_path):
    path = tmp_path / "wrong.toml"
    path.write_text("[log]\nlevel = 5\n\n[stor]\n")
    return path


def test_a_good_file_is_ok_and_summed_up(check, tmp_path):
    done = check(REFERENCE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"{REFERENCE}: ok",
        f"  store: {tmp_path}/tailrace",
        f"  spool: {tmp_path}/tailrace/spool",
        "  admin: 127.0.0.1:9464",
        "  heph_udp: heph over udp 127.0.0.1:7701",
        "  heph_tcp: heph over tcp 127.0.0.1:7701",
        "  jets_tcp: jets over tcp 127.0.0.1:7702",
        "  memory: at most 670 MiB (process 160, rows 64, received 58, sessions 108, streams 56,"
        " state 64, checkpoint 64, unfinished records 64, parsing 32)",
    ]


def test_what_keeps_files_from_being_read_as_meant_is_a_warning(check, tmp_path):
    """Two sources of one format share their files; those of two formats may both read one."""
    (tmp_path / "runs").mkdir()
    path = tmp_path / "tails.toml"
    path.write_text('[spool]\nmax_size = "8 MiB"\n' + "".join(
        f'[sources.{name}]\ntype = "tail"\nformat = "{format_}"\npaths = ["{tmp_path}/{pattern}"]\n'
        for name, format_, pattern in (
            ("a", "jets", "runs"), ("b", "jets", "runs/*.jets"), ("c", "dftracer", "runs"),
            ("d", "et3", "runs"), ("e", "jets", "absent/*.jets"),
        )
    ))  # fmt: skip
    done = check(path)
    assert done.returncode == 0
    warnings = [
        line.split("warning: ")[1]
        for line in done.stdout.splitlines()
        if "warning" in line and "descriptors" not in line  # of which this host may have few
    ]
    both = f"both lead to files of {tmp_path}/runs"
    same = "one source follows each file, and the other waits for it"
    assert warnings[0] == f"sources.a and sources.b {both}: {same}"
    assert [w.split(":")[0] for w in warnings[1:]] == [
        f"sources.a and sources.c {both} in different formats",
        f"sources.a and sources.d {both} in different formats",
        "sources.e",
        "spool.max_size (8 MiB) is less than spool.segment_size (64 MiB)",
    ]
    assert f"{tmp_path}/absent does not exist" in done.stdout


def test_all_problems_are_printed_one_a_line(check, wrong):
    done = check(wrong, TAILRACE_SPOOL_MAX_SIZE="5")
    assert (done.returncode, done.stderr) == (2, "")
    assert [line.split(": ")[:2] for line in done.stdout.splitlines()] == [
        [f"{wrong}:2", "log.level"],
        [f"{wrong}:4", "stor"],
        ["environment", "TAILRACE_SPOOL_MAX_SIZE"],
    ]


def test_problems_can_be_read_by_machines(check, wrong):
    done = check(wrong, "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout) == {
        "file": str(wrong),
        "ok": False,
        "problems": [
            {
                "origin": str(wrong),
                "line": 2,
                "key": "log.level",
                "message": 'must be one of "debug", "info", "warning", "error", not a whole number',
            },
            {
                "origin": str(wrong),
                "line": 4,
                "key": "stor",
                "message": "unknown section; did you mean store?",
            },
        ],
    }


def test_the_summary_can_be_read_by_machines(check, tmp_path):
    done = check(REFERENCE, "--json", TAILRACE_STORE_PATH="s3://a/b")
    summary = json.loads(done.stdout)
    assert (done.returncode, summary["ok"], summary["problems"]) == (0, True, [])
    assert summary["store"] == "s3://a/b"
    assert summary["spool"].startswith(f"{tmp_path}/tailrace/spool-")
    assert summary["sources"]["jets_tcp"] == {
        "type": "tcp",
        "format": "jets",
        "places": ["127.0.0.1:7702"],
    }
    assert len(summary["sha256"]) == 64


def test_a_file_that_is_not_there_is_a_problem(check, tmp_path):
    done = check(tmp_path / "no.toml")
    assert done.returncode == 2
    assert done.stdout == f"{tmp_path}/no.toml: cannot be read: No such file or directory\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="to put a unit in its place needs root")
def test_what_the_installed_unit_blocks_is_a_warning(tmp_path):
    units = tmp_path / "units"
    units.mkdir()
    shutil.copy(ROOT / "deploy/systemd/tailrace.service", units)
    config = tmp_path / "tailrace.toml"
    listen = 'listen = "0.0.0.0:7701"\nallow = ["10.0.0.0/8"]\n'
    config.write_text(f'[sources.far]\ntype = "tcp"\nformat = "heph"\n{listen}')
    check = ['mount --bind $0 /etc/systemd/system && exec "$@"', units, sys.executable]
    check += ["-m", "tailrace", "check", config]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", *check], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == (
        "  warning: tailrace.service blocks 10.0.0.0/8, which sources.far.listen (0.0.0.0:7701)"
        " must reach; see IPAddressAllow="
    )


def test_a_limit_of_open_files_that_cannot_hold_what_is_allowed_is_a_warning(environ, tmp_path):
    config = tmp_path / "tailrace.toml"
    listen = 'listen = "127.0.0.1:7701"\nconnections_max = 400\n'
    config.write_text(f'[sources.near]\ntype = "tcp"\nformat = "heph"\n{listen}')
    limited = ["prlimit", "--nofile=512:512", sys.executable, "-m", "tailrace", "check", config]
    done = subprocess.run(limited, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    (warning,) = [line for line in done.stdout.splitlines() if "warning" in line]
    assert "512 descriptors may be open at a time" in warning
    assert "add up to 529; see LimitNOFILE=" in warning
    config.write_text(config.read_text().replace("400", "300"))
    done = subprocess.run(limited, env=environ, capture_output=True, text=True, check=False)
    assert "warning" not in done.stdout


def test_no_file_is_wrong_usage(check):
    done = check()
    assert done.returncode == 2
    assert "Missing argument 'FILE'" in done.stderr


def test_a_reader_that_went_away_ends_it_quietly(environ):
    unread, full = os.pipe()
    os.close(unread)
    try:
        done = program.run(
            [*program.COMMAND, "check", REFERENCE],
            env=environ,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            timeout=120,
        )
    finally:
        os.close(full)
    assert (done.returncode, done.stderr) == (141, b"")


def test_an_interrupt_ends_it_quietly(environ, tmp_path):
    """It reads from a FIFO, whose other end is open only to know that it has begun to."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with program.start(
        [*program.COMMAND, "check", fifo],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        writer = opened_for_writing(fifo, deadline=time.monotonic() + 120)
        process.send_signal(signal.SIGINT)
        # A signal that comes just before the read does not end it; the end of the file does.
        os.close(writer)
        output = process.communicate(timeout=120)
    assert (process.returncode, output) == (130, (b"", b""))


def opened_for_writing(fifo, deadline):
    while True:
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # nobody has it open for reading yet
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_files_of_certificates_and_tokens_are_looked_into(check, tmp_path):
    authority = Authority(tmp_path)
    certificate, key = authority.issue("a.test", expires=PAST)
    path = tmp_path / "a.toml"
    path.write_text(
        f'[admin]\ntls_certificate = "{certificate}"\ntls_key = "{key}"\n[sources.a]\ntype = "tcp"\n'
        f'format = "heph"\nlisten = "127.0.0.1:1"\ntokens = "{tmp_path}/tokens"\n'
    )
    replace(tmp_path / "tokens", b"0123456789abcdef\n")
    assert check(path).returncode == 0  # one that has expired can be used; nobody will trust it
    (tmp_path / "tokens").chmod(0o644)
    replace(key, b"")
    done = check(path)
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.splitlines() == [
        f"{path}:3: admin.tls_key: {key}: holds no private key in PEM",
        f"{path}:8: sources.a.tokens: {tmp_path}/tokens: can be read by every user of this host; "
        f"run chmod o-r {tmp_path}/tokens",
    ]
    found = json.loads(check(path, "--json").stdout)["problems"]
    assert [problem["line"] for problem in found] == [3, 8]
    kept = check(path, TAILRACE_SOURCES_A_TOKENS=str(tmp_path / "nowhere")).stdout.splitlines()
    assert kept[1].startswith("environment: TAILRACE_SOURCES_A_TOKENS: ")
