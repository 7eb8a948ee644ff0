from __future__ import annotations

import pytest

from tests.packaging.installing import SAME_DATE, build_wheel, copy_tree


@pytest.fixture(scope="package")
def source(tmp_path_factory):
    """The tree as a clone has it."""
    return copy_tree(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="package")
def collector_wheel(source, tmp_path_factory):
    return build_wheel(source, tmp_path_factory.mktemp("collector"))


@pytest.fixture(scope="package")
def client_wheel(source, tmp_path_factory):
    return build_wheel(source / "clients/python", tmp_path_factory.mktemp("client"), **SAME_DATE)
