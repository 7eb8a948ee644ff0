"""`tailrace run` around programs that end oddly, and certificates that are none."""

from __future__ import annotations

import json

import pytest
import trio

from tailrace.errors import ConfigError, StoreError
from tailrace.run import certificate, program
from tailrace.run.surroundings import RunToken, sources
from tests.c.building import HERE, build
from tests.program import COMMAND, run


def test_a_signal_that_comes_with_the_programs_end_is_not_ours():
    """Ctrl-C goes to the program and to us; that it ended of it is no reason to certify nothing."""
    interrupts = 'trap "" INT; kill -INT $PPID; exit 5'
    try:
        assert trio.run(program.run, ["sh", "-c", interrupts], {}) == 5
    except KeyboardInterrupt:
        pytest.fail("the signal was raised again")


def test_a_source_of_no_known_format_is_a_clear_error(tmp_path):
    with pytest.raises(ConfigError, match="--source nope=x: the format must be one of"):
        sources(tmp_path, {}, ["nope=x"], RunToken("token", "file"))


@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"null", b"[" * 10**5, b'{"kind":"\xff"}', b'{"kind":"\\ud800"}']
)
def test_what_is_no_certificate_is_a_clear_error(content, tmp_path):
    (tmp_path / "certificate.json").write_bytes(content)
    with pytest.raises(StoreError, match="is not a run certificate"):
        certificate.read(tmp_path / "certificate.json")


def tailrace(*arguments, script=None):
    return run(
        [*COMMAND, *arguments],
        input=script, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def traced(store, *script):
    """Run the script of a C program. Return what it printed, and the totals of the certificate."""
    script = "".join(f"{line}\n" for line in ["connect -", *script])
    made = tailrace("run", "--store", str(store), "--", str(build(HERE / "play.c")), script=script)
    assert made.returncode == 0, made.stderr
    return made.stdout.splitlines(), certificate.read(store / "certificate.json").totals


def test_a_child_that_emits_and_is_gone_at_once_has_an_unknown_end(tmp_path):
    said, totals = traced(tmp_path, "flush 10000", "fork many 5", "fork event 61;kill")
    assert said == ["connect 0 0", "flush 0", "child 0", "child 9"]
    assert totals.unknown
    assert totals.stored in {5, 6}


def test_a_burst_at_once_behind_the_beginning_is_stored_whole(tmp_path):
    """The kernel has room for this many events, and a thread's ring has not."""
    _, totals = traced(tmp_path, "many 20000")
    assert (totals.expected, totals.stored) == (20000, 20000)
    assert (totals.missing, totals.unknown) == ({}, False)


def test_an_argument_that_is_no_text_is_certified(tmp_path):
    made = tailrace("run", "--store", str(tmp_path), "--", "true", b"\xff")
    assert made.returncode == 0, made.stderr
    assert certificate.read(tmp_path / "certificate.json").program.arguments == ["true", "\\xff"]
    assert tailrace("verify", str(tmp_path / "certificate.json")).returncode == 0


def test_a_key_that_is_empty_is_no_key_that_signed(tmp_path):
    """As of a variable that was not set."""
    pytest.importorskip("cryptography", reason="signatures are an extra")

    made = tailrace("run", "--store", str(tmp_path), "--", "true")
    assert made.returncode == 0, made.stderr
    verified = tailrace("verify", "--key", "", str(tmp_path / "certificate.json"))
    assert (verified.returncode, "it is not signed" in verified.stdout) == (1, True)


@pytest.mark.parametrize("threads", [100, 300])
def test_what_threads_without_a_place_emit_is_missing(threads, tmp_path):
    """The C client has 128 streams. Events of further threads have no numbers, and only the goodbye says how many."""
    made = tailrace(
        "run", "--store", str(tmp_path), "--max-loss", "0", "--",
        str(build(HERE / "threads.c", "-D_POSIX_C_SOURCE=200809L")), str(threads), "10",
    )  # fmt: skip
    emitted, discarded = map(int, made.stdout.split()[:2])
    assert (discarded > 0) == (threads > 128)
    assert made.returncode == (4 if discarded else 0), made.stderr
    totals = certificate.read(tmp_path / "certificate.json").totals
    assert (totals.expected, totals.stored) == (emitted, emitted - discarded)
    assert (totals.missing.get("sender", 0), totals.unknown) == (discarded, False)
    gaps = tailrace("gaps", "--store", str(tmp_path), "--json").stdout.splitlines()
    streams = tailrace("streams", "--store", str(tmp_path), "--complete-only")
    assert sum(json.loads(gap)["count"] for gap in gaps) == discarded
    assert streams.returncode == (3 if discarded else 0)
