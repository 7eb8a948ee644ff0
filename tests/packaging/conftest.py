from __future__ import annotations

import pytest

from tailrace import kernels
from tests.packaging.installing import (
    SAME_DATE,
    build_sdist,
    build_wheel,
    copy_tree,
    hasty_compiler,
    unpack,
)

SHARING = ("decoding/formats/dftracer/_kernel", "decoding/formats/jets/_kernel")
"""Kernels that together include all files which kernels share."""


@pytest.fixture(scope="package")
def source(tmp_path_factory):
    """Return the source tree as a clone has it."""
    return copy_tree(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="package")
def compiling(pytestconfig, tmp_path_factory):
    """Return the environment for compiling.

    In the short form the compiler does not optimize, because this takes most of the time and optimized code runs in all
    other tests.
    """
    if pytestconfig.getoption("--slow"):
        return {}
    return {"CC": str(hasty_compiler(tmp_path_factory.mktemp("compiler")))}


@pytest.fixture(scope="package")
def building(compiling):
    """Return the environment in which the collector's wheels are built."""
    return SAME_DATE | {"TAILRACE_KERNELS": ""} | compiling


@pytest.fixture(scope="package")
def distribution(source, tmp_path_factory):
    """Return the collector's source distribution."""
    return build_sdist(source, tmp_path_factory.mktemp("distribution"))


@pytest.fixture(scope="package")
def built(pytestconfig):
    """Return the kernels with which the collector's wheel is built.

    In the short form, these are two that together include all shared files: translating the others takes most of the
    time, and each of them runs in its own tests.
    """
    return kernels.KERNELS if pytestconfig.getoption("--slow") else SHARING


@pytest.fixture(scope="package")
def collector_wheel(distribution, building, built, tmp_path_factory):
    """Return the collector's wheel.

    It is built from the source distribution, as pip does, so that a file that is missing there makes all tests fail.
    """
    project = unpack(distribution, tmp_path_factory.mktemp("somewhere else"))
    for name in {*kernels.KERNELS} - {*built}:
        (project / f"collector/tailrace/{name}.pyx").unlink()
    return build_wheel(project, tmp_path_factory.mktemp("collector"), **building)


@pytest.fixture(scope="package")
def client_wheel(source, compiling, tmp_path_factory):
    out = tmp_path_factory.mktemp("client")
    return build_wheel(source / "clients/python", out, **SAME_DATE, **compiling)
