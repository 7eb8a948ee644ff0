"""The header under each compiler and standard, with every warning an error."""

from __future__ import annotations

import subprocess

import pytest

from tests.c.building import CLIENT, HERE, WARNINGS, build, need
from tests.c.listening import hear

BUILDS = [
    ("gcc", "c99"),
    ("gcc", "gnu17"),
    ("clang", "c99"),
    ("g++", "c++17"),
    ("clang++", "gnu++20"),
]
MORE = [
    ("gcc", "gnu99"),
    ("gcc", "c11"),
    ("clang", "gnu17"),
    ("g++", "gnu++20"),
    ("clang++", "c++17"),
]


@pytest.mark.parametrize(
    ("compiler", "standard"),
    [*BUILDS, *(pytest.param(*each, marks=pytest.mark.slow) for each in MORE)],
)
def test_it_compiles_without_a_warning(compiler, standard):
    build(HERE / "forms.c", f"-std={standard}", compiler=compiler)


LATE = """
#include <stdio.h>
#define TAILRACE_IMPLEMENTATION
#include "tailrace.h"
int main(void) { puts("here"); return tailrace_connect(NULL, NULL); }
"""


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_where_posix_is_hidden_one_error_says_what_to_define(tmp_path, compiler):
    need(compiler)
    source = tmp_path / "late.c"
    source.write_text(LATE)
    command = [compiler, "-std=c99", f"-I{CLIENT}", "-c", source, "-o", tmp_path / "late.o"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode
    assert done.stderr.count("error: ") == 1
    assert "Define _POSIX_C_SOURCE=200809L" in done.stderr
    for flag in ("-D_POSIX_C_SOURCE=200809L", "-D_GNU_SOURCE", "-std=gnu99"):
        standard = ["-std=c99"] if "D_" in flag else []
        build(source, *standard, flag, "-O0", compiler=compiler)


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_below_cpp17_an_error_says_what_to_compile_with(tmp_path, compiler):
    need(compiler)
    source = tmp_path / "old.cpp"
    source.write_text('#include "tailrace.h"\nint main() { return 0; }\n')
    command = [compiler, f"-I{CLIENT}", "-c", source, "-o", tmp_path / "old.o"]
    for standard in ("c++11", "gnu++14"):
        done = subprocess.run(
            [*command, f"-std={standard}"], capture_output=True, text=True, check=False
        )
        assert done.returncode
        first = next(line for line in done.stderr.splitlines() if "error: " in line)
        assert "needs C++17 or newer" in first
    subprocess.run([*command, "-std=c++17"], check=True)


@pytest.mark.parametrize("level", ["-O0", pytest.param("-Os", marks=pytest.mark.slow), "-O3"])
def test_no_level_of_optimisation_finds_more_to_warn_of(level):
    for compiler in ("gcc", "clang"):
        build(HERE / "forms.c", level, compiler=compiler)


@pytest.mark.parametrize("first", ["gcc", "g++"])
@pytest.mark.parametrize("second", ["clang", "clang++"])
def test_c_and_cpp_files_make_one_program(tmp_path, first, second):
    """The implementation in either language, its users in the other."""
    for compiler, source in ((first, "one.c"), (second, "two.c")):
        need(compiler)
        plus = compiler.endswith("++")
        language = ["-x", "c++", "-std=c++17"] if plus else ["-std=c99"]
        subprocess.run(
            [
                compiler, *WARNINGS, f"-I{CLIENT}",
                *language, "-c", HERE / source, "-o", tmp_path / f"{source}.o",
            ],
            check=True,
        )  # fmt: skip
    objects = [tmp_path / "one.c.o", tmp_path / "two.c.o"]
    subprocess.run(["g++", *objects, "-pthread", "-o", tmp_path / "program"], check=True)
    address = {"TAILRACE_ADDRESS": f"file://{tmp_path}/t"}
    subprocess.run([tmp_path / "program"], env=address, check=True)
    assert [event.name for event in hear((tmp_path / "t").read_bytes()).events] == [
        "here",
        "elsewhere",
    ]
