"""Every block of the README is run, in its order, and the CMake snippet by a project of its own."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from tests.c.building import CLIENT, HERE, WARNINGS, build, need
from tests.c.listening import attributes, hear
from tests.c.test_ovni_live import SHARED

ROOT = CLIENT.parent.parent
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", (CLIENT / "README.md").read_text(), re.DOTALL)


def block(language: str, number: int = 0) -> str:
    return [text for name, text in BLOCKS if name == language][number]


def test_these_are_all_blocks():
    assert [name for name, _ in BLOCKS] == ["c", "sh", "cpp", "cmake", "sh"]


@pytest.fixture
def tree(tmp_path):
    """A directory with the client where the README says, and what a person would write beside it."""
    (tmp_path / "clients").mkdir()
    (tmp_path / "clients" / "c").symlink_to(CLIENT)
    return tmp_path


def shell(script: str, tree, **environ: str) -> None:
    warnings = script.replace("cc ", f"cc {' '.join(WARNINGS)} ")
    subprocess.run(["sh", "-euc", warnings], cwd=tree, env=os.environ | environ, check=True)


def test_the_first_program(tree):
    (tree / "solve.c").write_text(block("c"))
    shell(block("sh").replace("/tmp/solve.heph", f"{tree}/solve.heph"), tree)  # noqa: S108
    heard = hear((tree / "solve.heph").read_bytes())
    heard.check_complete()
    assert [(event.name, event.kind) for event in heard.events] == [
        ("checkpoint", "span"), ("queue length", "counter"), ("solve", "span"),
    ]  # fmt: skip
    assert attributes(heard.events[2]) == [
        ("cell", "i64", -3), ("residuals", "f64[]", [0.5, 0.25, 0.125]),
    ]  # fmt: skip


def test_the_cpp_program(tree):
    (tree / "solve.cpp").write_text(block("cpp"))
    subprocess.run(
        [build(tree / "solve.cpp", compiler="g++")],
        env={"TAILRACE_ADDRESS": f"file://{tree}/t"},
        check=True,
    )
    heard = hear((tree / "t").read_bytes())
    assert [event.name for event in heard.events] == ["checkpoint", "solve"]


def test_the_cmake_snippet(tree):
    need("cmake")
    (tree / "solve.c").write_text(block("c"))
    (tree / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(solve LANGUAGES C)\n"
        "add_executable(solve solve.c)\nset_target_properties(solve PROPERTIES C_STANDARD 99)\n"
        + block("cmake")
    )
    cmake = ["cmake", "-S", tree, "-B", tree / "build"]
    subprocess.run(cmake, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", tree / "build"], check=True, stdout=subprocess.DEVNULL)
    assert not list((tree / "build").rglob("ovni_live.so")), "only where it is asked for"
    environ = {"TAILRACE_ADDRESS": f"file://{tree}/t"}
    subprocess.run([tree / "build" / "solve"], env=environ, check=True)
    hear((tree / "t").read_bytes()).check_complete()


def test_cmake_builds_the_preload_library(tmp_path):
    need("cmake")
    subprocess.run(["cmake", "-S", CLIENT, "-B", tmp_path], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", tmp_path], check=True, stdout=subprocess.DEVNULL)
    assert (tmp_path / "ovni_live.so").exists()


def test_the_preload_block(tree):
    writer = build(HERE / "ovni_writer.c", *SHARED)
    program = build(
        HERE / "ovni_program.c",
        "-std=gnu99",
        libraries=(str(writer), f"-Wl,-rpath,{writer.parent}"),
    )
    (tree / "program").symlink_to(program)
    script = (
        block("sh", 1)
        .replace("=200", "=20")
        .replace("./program", "./program <<.\nbegin\nspans 20 5\n.")
    )
    shell(script, tree, OVNI_TRACEDIR=f"{tree}/ovni")
    (stream,) = tree.rglob("stream.obs")
    assert stream.read_bytes().count(b"VU]") > 10
