"""Nothing outside the roots of the patterns is read, whatever a link is put in the place of, and when."""

from __future__ import annotations

import errno
import os
import shutil

import pytest

from tailrace.sources.tail.location import OutsideError, Roots

BESIDE = ("own.json", "../shared.txt")


@pytest.fixture
def secret(tmp_path):
    (tmp_path / "outside/deep").mkdir(parents=True)
    path = tmp_path / "outside/deep/a"
    path.write_bytes(b"secret")
    return path


def roots_of(*paths, is_file=False):
    roots = Roots(lambda _: BESIDE)
    for path in paths:
        roots.add(str(path), is_file=is_file)
    return roots


def content(roots, path):
    fd = roots.open(str(path))
    try:
        return os.read(fd, 100)
    finally:
        os.close(fd)


def test_a_link_out_of_the_roots_is_neither_looked_at_nor_opened(files, secret):
    roots = roots_of(files.directory)
    files.write("a", b"x")
    (files / "link").symlink_to(secret)
    (files / "up").symlink_to(secret.parent)
    (files / "on").symlink_to("link")
    assert content(roots, files / "a") == b"x"
    for name in ("link", "up/a", "on", "../outside/deep/a"):
        for way in (roots.look, roots.open):
            with pytest.raises(OutsideError):
                way(str(files / name))


def test_a_name_that_only_begins_like_a_root_is_outside(files, tmp_path):
    (tmp_path / "files2").write_bytes(b"x")
    with pytest.raises(OutsideError):
        roots_of(files.directory).open(str(tmp_path / "files2"))


def test_pipes_devices_and_directories_are_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, "/dev/null"):
        with pytest.raises(OSError, match="is no file") as raised:
            roots_of(tmp_path, "/dev").open(str(path))
        assert raised.value.errno == errno.EINVAL


def test_with_a_file_comes_what_its_format_has_beside_it(files):
    for name in ("run/a", "run/own.json", "shared.txt", "run/b", "other.txt"):
        files.write(name, b"x")
    roots = roots_of(files / "run/a", is_file=True)
    for name in ("run/a", "run/own.json", "shared.txt"):
        assert content(roots, files / name) == b"x"
    for name in ("run/b", "other.txt"):
        with pytest.raises(OutsideError):
            roots.open(str(files / name))


def test_a_root_that_is_a_link_is_where_it_leads_now(files, secret):
    files.write("real/a", b"x")
    link = files / "link"
    link.symlink_to("real")
    roots = roots_of(link, link)
    assert content(roots, link / "a") == content(roots, files / "real/a") == b"x"
    link.unlink()
    link.symlink_to(secret.parent)
    with pytest.raises(OutsideError):
        roots.open(str(link / "a"))
    roots.add(str(link), is_file=False)
    assert content(roots, link / "a") == b"secret"
    with pytest.raises(OutsideError):
        roots.open(str(files / "real/a"))


def replaced_file(files, secret):
    (files / "run/a").unlink()
    (files / "run/a").symlink_to(secret)


def replaced_directory(files, secret):
    shutil.rmtree(files / "run")
    (files / "run").symlink_to(secret.parent)


def renamed_over(files, secret):
    (files / "link").symlink_to(secret)
    (files / "link").rename(files / "run/a")


@pytest.mark.parametrize(
    ("change", "outside"), [(replaced_file, 1), (replaced_directory, 2), (renamed_over, 1)]
)
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_link_in_the_place_of_what_is_followed_is_not(
    change, outside, restarted, autojump_clock, follow, files, intake, settle, secret
):
    files.write("run/a", b"mine")
    tail = follow()
    await settle()
    if restarted:
        await tail.stop()
    change(files, secret)
    if restarted:
        tail = follow()
    await settle()
    assert intake.contents == [b"mine"]
    assert tail.source.figures().refused == {"outside": outside}
    assert intake.sessions[0].closed is not None


async def test_a_link_in_the_place_of_what_could_not_be_read_is_not(
    autojump_clock, follow, files, intake, settle, secret, monkeypatch
):
    files.write("run/a", b"mine")
    before = Roots.look

    def refused(_self, path):
        raise PermissionError(errno.EACCES, "", path)

    monkeypatch.setattr(Roots, "look", refused)
    tail = follow()
    await settle()
    monkeypatch.setattr(Roots, "look", before)
    replaced_file(files, secret)
    await settle()
    assert intake.contents == []
    assert tail.source.figures().refused == {"outside": 1}


async def test_each_link_out_of_the_roots_is_counted_and_few_are_named(
    autojump_clock, follow, files, settle, secret, caplog
):
    for number in range(20):
        (files / f"link\n{number}").symlink_to(secret)
    tail = follow()
    await settle()
    assert tail.source.figures().refused == {"outside": 20}
    named = [r.getMessage() for r in caplog.records if "leads out" in r.getMessage()]
    assert len(named) == 5
    assert all("\n" not in line for line in named)
