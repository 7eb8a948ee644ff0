"""Hold docs/ADD_A_FORMAT.md to its promise: a package of at most 200 lines adds a format.

A wheel of the page's package is built and installed beside Tailrace, in an environment without this source tree. The
page's commands run there. Then the format is received, followed live, stored and exported. So is, at the same time, a
format whose decoder fails; other broken formats are refused.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from msgspec import structs

from tailrace.decoding.formats import FORMATS
from tailrace.decoding.plugins import checked
from tests import toml
from tests.docs.pages import FENCE, Shell, blocks, environment
from tests.formats.toy import FORMAT, PROJECT
from tests.packaging.installing import CLEAN, ROOT, Environment, build_wheel, copy_tree, pip
from tests.query.asking import ask_all
from tests.system.collector import Collector, until

PAGE = ROOT / "docs/ADD_A_FORMAT.md"
LINES_MAX = 200
LINES = b"n 31 main\nk 31\ne one\nm 3\nwhat?\ne two\n"
FRAGILE = """
import msgspec, toy_format

class Decoder(toy_format.ToyDecoder):
    def feed(self, data):
        if b"boom" in data:
            raise KeyError("boom")
        return super().feed(data)

FORMAT = msgspec.structs.replace(toy_format.FORMAT, name="fragile", decoder=Decoder)
BROKEN = None
"""
REFUSED = {
    "broken": "it is a NoneType, not a tailrace.decoding.contract.Format",
    "heph": "Tailrace has a format of this name",
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return an environment with wheels of Tailrace and of the page's package, and with broken formats."""
    trees, wheels = tmp_path_factory.mktemp("trees"), tmp_path_factory.mktemp("wheels")
    collector = build_wheel(copy_tree(trees / "all"), wheels, TAILRACE_KERNELS="off")
    plugin = copy_tree(trees / "plugin", "examples/format_plugin") / "examples/format_plugin"
    pip("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, plugin)
    (wheel,) = wheels.glob("tailrace_toy_format-*.whl")
    found = Environment(trees / "environment", collector, wheel, dependencies=True)
    package = ROOT / "collector/tailrace"
    for library in package.rglob("_*.so"):
        shutil.copy2(library, found.site / library.relative_to(package.parent))
    return found


@pytest.fixture
def broken(installed, monkeypatch):
    """Install a format that fails at run time, and two that are refused. Return the environment."""
    (installed.site / "fragile.py").write_text(FRAGILE)
    about = installed.site / "fragile-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: fragile\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[tailrace.formats]\nfragile = fragile:FORMAT\nbroken = fragile:BROKEN\nheph = fragile:FORMAT\n"
    )
    # The checks of metrics in this process know the labels of these formats, too.
    for name in ("toy", "fragile"):
        monkeypatch.setitem(FORMATS, name, checked(name, structs.replace(FORMAT, name=name)))
    yield installed
    shutil.rmtree(about)
    (installed.site / "fragile.py").unlink()


class Installed(Collector):
    """A daemon of the environment."""

    def __init__(self, directory: Path, program: Path, **options):
        super().__init__(directory, **options)
        self._program = program

    def command(self):
        return [self._program, "serve", "--config", self.config, "--store", self.store]


def tailrace(installed, *arguments, status=0):
    command = [installed.bin / "tailrace", *map(str, arguments)]
    done = subprocess.run(
        command, env=CLEAN, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


EVENTS = "SELECT name FROM events WHERE source = '{}' AND kind = 'instant' ORDER BY \"offset\""
GAPS = "SELECT reason, count FROM gaps WHERE source = '{}' ORDER BY reason"


def check_table(store, source):
    """The four events, the name of one of them, and what is missing."""
    events, gaps = ask_all(store, [each.format(source) for each in (EVENTS, GAPS)])
    assert events == [(name,) for name in ("main", "one", "m", "two")], source
    assert gaps == [("malformed", 1), ("network", 3)], source


def test_the_package_is_that_of_the_page_and_small():
    python = [body for language, body in FENCE.findall(PAGE.read_text()) if language == "python"]
    assert "\n\n".join(python) == (PROJECT / "toy_format.py").read_text()
    assert sum(len(path.read_text().splitlines()) for path in PROJECT.glob("*.*")) <= LINES_MAX
    shown = [body for language, body in FENCE.findall(PAGE.read_text()) if language == "toml"]
    assert shown[0] in (PROJECT / "pyproject.toml").read_text()


def test_the_page_does_what_it_shows(installed, tmp_path):
    copy_tree(tmp_path, "examples/format_plugin")
    environ = CLEAN | environment(tmp_path)
    environ["PATH"] = f"{installed.bin}:{environ['PATH']}"
    with Shell(cwd=tmp_path, environ=environ) as shell:
        for block in blocks(PAGE):
            if block.language == "sh":
                shell.read(block._replace(text=block.text.replace("/tmp/toy", str(tmp_path))))  # noqa: S108


def test_formats_are_received_followed_and_exported_beside_one_that_fails(
    broken, tmp_path, request
):
    runs = tmp_path / "runs"
    here = {"listen": "127.0.0.1:0"}
    sources = toml.source("files", "tail", "toy", paths=[runs])
    sources += toml.source("tcp", "tcp", "toy", **here) + toml.source("udp", "udp", "toy", **here)
    sources += toml.source("bad_tcp", "tcp", "fragile", **here)
    sources += toml.source("bad_udp", "udp", "fragile", **here)
    collector = Installed(tmp_path, broken.bin / "tailrace", sources=sources).start()
    request.addfinalizer(collector.kill)
    runs.mkdir()
    with (runs / "a.toy").open("wb", buffering=0) as file:
        for at in range(0, len(LINES), 7):
            file.write(LINES[at : at + 7])
    bad = b"e one\ne boom\n", b"e two\n"
    sent = {
        "tcp": LINES.splitlines(keepends=True),
        "udp": LINES.splitlines(keepends=True),
        "bad_tcp": bad,
        "bad_udp": bad,
    }
    for source, parts in sent.items():
        kind = socket.SOCK_DGRAM if source.endswith("udp") else socket.SOCK_STREAM
        with socket.socket(socket.AF_INET, kind) as producer:
            producer.connect(collector.address(source))
            for number, part in enumerate(parts, 1):
                producer.sendall(part)
                size = sum(map(len, parts[:number]))
                until(
                    lambda source=source, size=size: (
                        collector.status()["sources"][source]["received_bytes"] == size
                    ),
                    f"the bytes of {source}",
                )
    until(
        lambda: collector.status()["sources"]["files"]["received_bytes"] == len(LINES), "the file"
    )
    collector.settle()
    collector.check_balance()
    for source in ("files", "tcp", "udp"):
        check_table(collector.store, source)
    status = collector.status()["sources"]
    # A stream is not decoded any further, but the next datagram is.
    for source, size, events in (("bad_tcp", 19, 0), ("bad_udp", 13, 1)):
        assert status[source]["malformed_records"].keys() == {"decoder_failed"}, source
        found = status[source]["malformed_bytes"], status[source]["seen_events"]
        assert found == (size, events)
        about = "SELECT attributes FROM events WHERE kind = 'session' AND name = 'decoder_failed' AND source = '{}'"
        ((text,),) = ask_all(collector.store, [about.format(source)])[0]
        assert json.loads(text)["error"].startswith("KeyError: 'boom' (fragile.py, line ")
    collector.stop()
    for name, why in REFUSED.items():
        assert collector.log().count(f"format '{name}' of fragile 1.0 is refused: {why}") == 1
    out = tmp_path / "trace.jsonl"
    tailrace(broken, "export", "--store", collector.store, "--to", "jsonl", "-o", out)
    names = [json.loads(line)["name"] for line in out.read_text().splitlines()]
    assert [names.count(name) for name in ("m", "two")] == [3, 4]


def test_check_names_what_is_refused(broken, tmp_path):
    config = tmp_path / "tailrace.toml"
    lines = [f"format '{name}' of fragile 1.0 is refused: {why}" for name, why in REFUSED.items()]
    config.write_text(toml.source("a", "tcp", "heph", listen="127.0.0.1:0"))
    said = tailrace(broken, "check", config).stdout
    assert [f"  warning: {line}" in said for line in lines] == [True, True]
    config.write_text(toml.source("a", "tcp", "broken", listen="127.0.0.1:0"))
    said = tailrace(broken, "check", config, status=2).stdout
    assert "not 'broken'" in said
    assert f"warning: {lines[0]}" in said
    said = tailrace(broken, "serve", "--config", config, status=2).stderr
    assert lines[0] in said
    said = tailrace(broken, "import", "--format", "broken", tmp_path, status=2).stderr
    assert lines[0] in said


def test_a_source_that_cannot_carry_it_is_refused(installed, tmp_path):
    config = tmp_path / "tailrace.toml"
    config.write_text(toml.source("toys", "unix", "toy", listen="/run/toys.sock"))
    said = tailrace(installed, "check", config, status=2).stdout
    assert "which a unix source can carry; not 'toy'" in said
