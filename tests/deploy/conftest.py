from __future__ import annotations

import subprocess

import pytest

from tests.deploy import fresh_root


@pytest.fixture(scope="session")
def debian(tmp_path_factory):
    """Return the root directory of which all others are copies. Making it takes a minute or two."""
    root = tmp_path_factory.mktemp("debian") / "root"
    fresh_root.make(root)
    return root


@pytest.fixture(scope="module")
def root(debian, tmp_path_factory):
    """Return a fresh copy of the root directory, with a clone of this repository."""
    root = tmp_path_factory.mktemp("fresh") / "root"
    subprocess.run(["cp", "-a", "--reflink=auto", debian, root], check=True)
    fresh_root.clone_into(root)
    return root
