"""Nothing is left of what a file system has: of bytes, of inodes, of a limit. All commands name what it is, and the collector waits."""

from __future__ import annotations

import errno
import json
import os
import resource
import socket
from contextlib import suppress

import pytest

from tailrace.filesystem import LITTLE, FreeRoom, free_room, refusal_text
from tests import program, toml
from tests.ingest.log import heph_event
from tests.query.asking import ask
from tests.system.collector import until

MORE = toml.section("store", commit_interval="50 ms") + toml.section("heartbeat", interval="1 h")


def take_inodes(place, *, left=0):
    """Make empty files until so few inodes are left. Return them."""
    files = []
    while os.statvfs(place).f_favail > left:
        files.append(place / f"taken-{len(files)}")
        files[-1].touch()
    return files


def command(*arguments, code=1, **options):
    """Run a command, which fails; what it printed."""
    done = program.run(
        [*program.COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False, **options
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def send(collector, numbers):
    with socket.create_connection(collector.address("tcp")) as peer:
        peer.sendall(b"".join(heph_event(1, number) for number in numbers))


def stored(store):
    return ask(store, "SELECT count(*) FROM spans")[0][0]


def test_a_collector_without_inodes_says_so_keeps_what_comes_and_goes_on(mounted, collectors):
    place = mounted("size=400m,nr_inodes=200")
    collector = collectors(more=MORE, store=place / "store").start()
    send(collector, range(10))
    collector.settle()
    taken = take_inodes(place)
    send(collector, range(10, 20))
    words = f"no inodes are left on {place}: df -i {place}"

    def conditions():
        return json.loads(collector.get("/healthz")[1])["conditions"]

    until(lambda: words in conditions().get("store", ""), "the condition")
    collector.logged(words)
    check = command(
        "check",
        collector.config,
        code=0,
        env=os.environ | {"TAILRACE_STORE_PATH": str(collector.store)},
    )
    assert f"warning: {words}" in check
    doctor = program.run(
        [*program.COMMAND, "doctor", "--json", "--config", collector.config, "--store", collector.store],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    [problem] = [
        found for found in json.loads(doctor.stdout)["findings"]
        if found["check"] == "disk space" and found["severity"] == "problem"
    ]  # fmt: skip
    assert problem["what"].startswith(f"No inodes are left on {place}")
    assert problem["commands"][0] == f"df -i {place}"
    for file in taken:
        file.unlink()
    until(lambda: not conditions(), "it to mend")
    collector.settle()
    collector.stop()
    assert collector.process.returncode == 0
    assert stored(collector.store) == 20


@pytest.mark.parametrize(
    "arguments",
    [
        ("import", "--store", "{place}/other", "--format", "heph", "{trace}"),
        ("serve", "--store", "{place}/other"),
        ("run", "--require-trace", "--store", "{place}/other", "--", "true"),
        ("upkeep", "--store", "{store}"),
        ("export", "--store", "{store}", "--to", "chrome", "-o", "{place}/trace.json"),
        ("export", "--store", "{store}", "--to", "original", "-o", "{place}/traces"),
        ("bundle", "--store", "{store}", "--output", "{place}/bundle.tar.gz"),
    ],
    ids=["import", "serve", "run", "upkeep", "export", "export original", "bundle"],
)
def test_every_command_that_writes_names_inodes(mounted, tmp_path, arguments):
    place = mounted("size=400m,nr_inodes=200")
    trace, store = tmp_path / "trace.heph", place / "store"
    trace.write_bytes(b"".join(heph_event(1, number) for number in range(10)))
    command("import", "--store", store, "--format", "heph", trace, code=0)
    take_inodes(place)
    filled = [each.format(place=place, trace=trace, store=store) for each in arguments]
    done = program.run(
        [*program.COMMAND, *filled], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode in {1, 2}
    assert f"no inodes are left on {place}: df -i {place}" in done.stdout + done.stderr
    assert stored(store) == 10


def test_a_limit_of_file_sizes_is_named_and_the_log_lives_with_it(collectors):
    """The system then also sends a signal, which would end the process."""
    limit = 3 * 2**20

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    collector = collectors(more=MORE, before=limited).start()
    for first in range(0, 150_000, 50_000):
        send(collector, range(first, first + 50_000))
    until(lambda: collector.status()["sources"]["tcp"]["seen_events"] == 150_000, "all events")
    collector.settle()
    assert max(path.stat().st_size for path in collector.store.rglob("*.segment")) <= limit
    collector.stop()
    assert collector.process.returncode == 0
    assert stored(collector.store) == 150_000


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EDQUOT, "Disk quota exceeded on {0}: quota -s, or whoever set the quota"),
        (errno.EROFS, "Read-only file system: {0}; if it was mounted for writing, the kernel's log says what failed (dmesg)"),
        (errno.EIO, "Input/output error: the disk of {0} failed; the kernel's log says how (dmesg)"),
        (errno.EFBIG, "File too large: the limit of this process (ulimit -f) or of {0}"),
        (errno.EMLINK, "Too many links: the directory can hold no more directories"),
        (errno.EACCES, "Permission denied"),
        (None, "Success"),
    ],
)  # fmt: skip
def test_each_error_says_what_it_means_there(tmp_path, number, words):
    mount = free_room(tmp_path).mount
    assert os.path.ismount(mount)
    assert refusal_text(number, tmp_path / "not" / "there") == words.format(mount)


def test_no_room_says_of_what(mounted, tmp_path):
    place = mounted("size=8m,nr_inodes=100")
    assert refusal_text(errno.ENOSPC, place / "x").startswith(
        "No space left on device: 8.0 MiB are free on"
    )
    with suppress(OSError), (place / "ballast").open("wb", buffering=0) as file:
        while file.write(bytes(2**16)):
            pass
    full = f"No space left on device: 0.0 MiB are free on {place}: df -h {place}"
    assert refusal_text(errno.ENOSPC, place / "x") == full
    assert free_room(place).lack == f"no space is left on {place}: df -h {place}"
    roomy = free_room(tmp_path)
    if roomy.bytes > LITTLE:
        assert "though" in refusal_text(errno.ENOSPC, tmp_path)
        assert roomy.lack is None
    assert refusal_text(errno.ENOSPC, "s3://bucket/table") == "No space left on device"
    assert FreeRoom(place, 1, None).lack is None
