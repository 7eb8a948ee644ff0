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
"""Kernels that include all files that kernels share."""


@pytest.fixture(scope="package")
def source(tmp_path_factory):
    """The tree as a clone has it."""
    return copy_tree(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="package")
def compiling(pytestconfig, tmp_path_factory):
    """The environment of what compiles. In the short form the compiler does not optimize: most of the time would go
    there, and what is optimized runs in all other tests."""
    if pytestconfig.getoption("--slow"):
        return {}
    return {"CC": str(hasty_compiler(tmp_path_factory.mktemp("compiler")))}


@pytest.fixture(scope="package")
def building(compiling):
    """The environment in which the collector's wheels are built."""
    return SAME_DATE | {"TAILRACE_KERNELS": ""} | compiling


@pytest.fixture(scope="package")
def distribution(source, tmp_path_factory):
    """The collector's source distribution."""
    return build_sdist(source, tmp_path_factory.mktemp("distribution"))


@pytest.fixture(scope="package")
def built(pytestconfig):
    """The kernels that the collector's wheel is built with. In the short form two, which together include all that
    kernels share: the translation of the others takes most of the time, and each of them runs in its own tests."""
    return kernels.KERNELS if pytestconfig.getoption("--slow") else SHARING


@pytest.fixture(scope="package")
def collector_wheel(distribution, building, built, tmp_path_factory):
    """Built from the source distribution, as pip does, so that whatever that lacks shows in all tests."""
    project = unpack(distribution, tmp_path_factory.mktemp("somewhere else"))
    for name in {*kernels.KERNELS} - {*built}:
        (project / f"collector/tailrace/{name}.pyx").unlink()
    return build_wheel(project, tmp_path_factory.mktemp("collector"), **building)


@pytest.fixture(scope="package")
def client_wheel(source, compiling, tmp_path_factory):
    out = tmp_path_factory.mktemp("client")
    return build_wheel(source / "clients/python", out, **SAME_DATE, **compiling)
