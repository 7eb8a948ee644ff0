"""Test that other users gain no rights of a C program: by the environment of a set-uid program, or by files that they prepare."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tests.c.building import HERE, build, play
from tests.c.listening import Stream, hear

NOBODY = 65534


@pytest.fixture(scope="module")
def program():
    return build(HERE / "play.c")


@pytest.fixture
def set_uid(program, tmp_path_factory):
    """The set-uid root program, in a directory where every user can run it."""
    if os.geteuid():
        pytest.skip("only root makes a program that is set-uid root")
    directory = Path("/var/tmp") / tmp_path_factory.mktemp("uid").name  # noqa: S108 - others must reach it
    directory.mkdir(0o755)
    made = directory / "play"
    shutil.copy(program, made)
    made.chmod(0o4755)
    yield made
    shutil.rmtree(directory)


def as_nobody(path: Path, script: str, **environ: str) -> list[str]:
    ended = subprocess.run(
        [path],
        input=script,
        env=environ,
        user=NOBODY,
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert not ended.stderr
    return ended.stdout.splitlines()


def test_a_privileged_program_does_as_its_environment_says_in_nothing(set_uid, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("a-secret-of-root-only\n")
    secret.chmod(0o600)
    peer = Stream()
    said = as_nobody(
        set_uid,
        "connect -\nmany 10\nflush 1000\n",
        TAILRACE_ADDRESS=peer.address,
        TAILRACE_TOKEN_FILE=str(secret),
    )
    assert said == ["connect 0 0", "flush -1"]
    said = as_nobody(
        set_uid, "connect -\nmany 10\nflush 1000\n", TAILRACE_ADDRESS=f"file://{tmp_path}/made"
    )
    assert said == ["connect 0 0", "flush -1"]
    assert peer.close() == []
    assert not (tmp_path / "made").exists()


def test_what_a_privileged_program_itself_names_is_sent_without_its_environments_facts(
    set_uid, tmp_path
):
    secret = tmp_path / "secret"
    secret.write_text("a-secret-of-root-only\n")
    peer = Stream()
    said = as_nobody(
        set_uid,
        f"connect {peer.address} linger=20000\nmany 10\n",
        TAILRACE_TOKEN_FILE=str(secret),
        TAILRACE_TOKEN="another-secret-of-16",  # noqa: S106 - nobody's
        TAILRACE_JOB_ID="a job",
        SLURM_PROCID="3",
    )
    assert said == ["connect 0 0"]
    (data,) = peer.close()
    assert b"secret" not in data
    heard = hear(data)
    assert heard.final == {"1": 10}
    assert not {"rank", "job", "node"} & set(heard.said("tailrace.session")[0])


def test_a_program_without_more_rights_does(set_uid):
    """The same program, as long as nothing but its mode differs."""
    set_uid.chmod(0o755)
    peer = Stream()
    as_nobody(set_uid, "connect -\nmany 10\n", TAILRACE_ADDRESS=peer.address, SLURM_PROCID="3")
    (data,) = peer.close()
    assert hear(data).said("tailrace.session")[0]["rank"] == 3


def test_a_trace_is_for_its_owner_unless_it_is_there(program, tmp_path):
    before = os.umask(0)
    try:
        play(program, f"connect file://{tmp_path}/new", "many 10")
        (tmp_path / "there").touch(0o644)
        play(program, f"connect file://{tmp_path}/there", "many 10")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("new", "there")]
    assert modes == [0o600, 0o644]
    assert (tmp_path / "there").stat().st_size > 0


@pytest.mark.parametrize("target", ["there", "absent"])
def test_a_link_in_the_traces_place_is_not_followed(program, tmp_path, target):
    (tmp_path / "there").write_text("of somebody else")
    (tmp_path / "trace").symlink_to(tmp_path / target)
    said = play(
        program, f"connect file://{tmp_path}/trace linger=1", "many 10", "flush 100", "wrong"
    )
    assert said[1] == "flush -1"
    assert "is a symbolic link, which is not followed" in said[2]
    assert (tmp_path / "there").read_text() == "of somebody else"
    assert not (tmp_path / "absent").exists()
