from __future__ import annotations

import pytest

from tests.packaging.installing import SAME_DATE, build_wheel, copy_tree, hasty_compiler


@pytest.fixture(scope="package")
def source(tmp_path_factory):
    """The tree as a clone has it."""
    return copy_tree(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="package")
def building(pytestconfig, tmp_path_factory):
    """The environment in which the collector's wheels are built. In the short form the kernels are not
    optimized: most of the time would go there, and what is optimized runs in all other tests."""
    environ = SAME_DATE | {"TAILRACE_KERNELS": ""}
    if not pytestconfig.getoption("--slow"):
        environ["CC"] = str(hasty_compiler(tmp_path_factory.mktemp("compiler")))
    return environ


@pytest.fixture(scope="package")
def collector_wheel(source, building, tmp_path_factory):
    return build_wheel(source, tmp_path_factory.mktemp("collector"), **building)


@pytest.fixture(scope="package")
def client_wheel(source, tmp_path_factory):
    return build_wheel(source / "clients/python", tmp_path_factory.mktemp("client"), **SAME_DATE)
