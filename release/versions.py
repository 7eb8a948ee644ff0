"""The version, which `tailrace.__version__` states and some other files repeat.

python -m release.versions          # print each place and what it states
python -m release.versions 0.2.0    # write a new version to all of them
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
"""CPythons for which a release has wheels with kernels."""

_NUMBER = r"\d+\.\d+\.\d+"
HOME = "collector/tailrace/__init__.py"
PLACES = {
    HOME: r'__version__ = "',
    "clients/python/src/tailrace_client/__init__.py": r'__version__ = "',
    "clients/python/src/tailrace_client/_session.py": r'CLIENT = "tailrace-python ',
    "clients/c/CMakeLists.txt": r"project\(tailrace_c VERSION ",
    "clients/c/tailrace.h": r'#define TAILRACE_VERSION "',
    "CITATION.cff": r"\nversion: ",
    "deploy/README.md": r"\btailrace[-:]",
    "deploy/apptainer/tailrace.def": r"\btailrace-",
    "deploy/kubernetes/daemonset.yaml": r"\btailrace:",
    "deploy/spack/spack_repo/tailrace/packages/tailrace/package.py": r'\bversion\("|\btailrace-',
}
"""Files that state the version, and a pattern of the words before it."""


def stated(path: str) -> set[str]:
    """Return the versions that a file states."""
    found = re.findall(f"(?:{PLACES[path]})({_NUMBER})", (ROOT / path).read_text())
    return set(found)


def version() -> str:
    (found,) = stated(HOME)
    return found


def release_date() -> str | None:
    """Return the date under which CHANGELOG.md lists the version, or None if it lists the version without a date."""
    heading = rf"^## {re.escape(version())}, (\d{{4}}-\d\d-\d\d)$"
    found = re.search(heading, (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    return found and found[1]


def write(new: str) -> None:
    """Write a new version to all places."""
    for path, before in PLACES.items():
        text = (ROOT / path).read_text()
        (ROOT / path).write_text(re.sub(f"({before}){_NUMBER}", rf"\g<1>{new}", text))


if __name__ == "__main__":
    for number in sys.argv[1:]:
        if not re.fullmatch(_NUMBER, number):
            sys.exit(f"release.versions: {number!r} is not a version of three numbers, as 0.2.0 is")
        write(number)
    for place in PLACES:
        print(f"{', '.join(stated(place)):8} {place}")
