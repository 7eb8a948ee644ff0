"""The page's modules have all names that others import. Its libraries are the bundles that their script makes of pinned
versions, and nothing else."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

VIEW = Path(__file__).parents[2] / "collector/tailrace/view"
VENDOR = VIEW / "page/vendor"
IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)"', re.MULTILINE)
EXPORT = re.compile(r"^export (?:async )?(?:function\*?|const|class) (\w+)", re.MULTILINE)


def test_each_name_that_a_module_imports_is_exported():
    """A browser does not run a module with an import that it cannot resolve, nor the view that needs the module."""
    wanted = 0
    for module in sorted((VIEW / "page").rglob("*.js")):
        if VENDOR in module.parents:
            continue
        for names, path in IMPORT.findall(module.read_text()):
            source = (module.parent / path).resolve()
            if VENDOR in source.parents:
                continue
            known = set(EXPORT.findall(source.read_text()))
            words = {each.split(" as ")[0].strip() for each in names.split(",") if each.strip()}
            assert words <= known, (module.name, path, words - known)
            wanted += len(words)
    assert wanted > 100, "imports are found"


def sums(directory):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.iterdir()
        if path.name != "SHA256SUMS"
    }


def listed():
    lines = (VENDOR / "SHA256SUMS").read_text().splitlines()
    return {name: digest for digest, name in (line.split("  ") for line in lines)}


def test_the_committed_bundles_have_their_sums():
    assert sums(VENDOR) == listed()


def test_the_lock_file_names_no_registry():
    text = (VIEW / "bundles/package-lock.json").read_text()
    assert "resolved" not in text


def test_the_same_pins_make_the_same_bundles(tmp_path):
    if shutil.which("npm") is None:
        pytest.skip("needs npm: apt install npm")
    made = subprocess.run(
        ["node", VIEW / "bundles/make.mjs", tmp_path / "vendor"],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode and any(
        word in made.stderr for word in ("ENOTFOUND", "ECONNREFUSED", "ETIMEDOUT")
    ):
        pytest.skip("needs a registry of npm packages: set npm's `registry`")
    assert made.returncode == 0, made.stderr
    assert sums(tmp_path / "vendor") == listed()
