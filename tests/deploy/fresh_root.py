"""Make a Debian with Python, make and certificates, and nothing else.

Tests do there what a person would do, and it is the base image of ours if no registry can be reached.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.packaging.installing import copy_tree

PACKAGES = ("python3", "python3-venv", "make", "ca-certificates")
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
CLONE = "/home/tailrace"
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

MISSING = [
    f"needs {tool}: apt-get install {package}"
    for tool, package in (("debootstrap", "debootstrap"), ("unshare", "util-linux"))
    if shutil.which(tool) is None
]
if os.geteuid() != 0:
    MISSING.append("makes a root file system: needs root")

ENTER = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'


def mirror() -> tuple[str, str]:
    """Return from where this machine gets its Debian, and which release."""
    form = ["--format", "$(ORIGIN) $(REPO_URI) $(CODENAME)", "Identifier: Packages"]
    targets = subprocess.run(
        ["apt-get", "indextargets", *form], capture_output=True, text=True, check=True
    )
    for line in targets.stdout.splitlines():
        origin, uri, codename = line.rsplit(" ", 2)
        if origin == "Debian" and "-" not in codename:
            return uri, codename
    raise AssertionError("apt has no list of Debian's packages: apt-get update")


def make(root: Path) -> None:
    """Make a minimal Debian with these packages. Certificates and resolver are those of this machine."""
    uri, codename = mirror()
    include = f"--include={','.join(PACKAGES)}"
    debootstrap = ["debootstrap", "--variant=minbase", include, codename, root, uri]
    done = subprocess.run(debootstrap, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    shutil.rmtree(root / "var/cache/apt")
    shutil.rmtree(root / "var/lib/apt/lists")
    for path in (CERTIFICATES, "/etc/resolv.conf"):
        shutil.copyfile(path, root / path.lstrip("/"))


def downloads() -> dict[str, str]:
    """Return how pip gets packages here, as environment variables.

    Settings that work only on this machine are left out.
    """
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    found = {}
    for line in listed.stdout.splitlines():
        key, _, value = line.partition("=")
        words = [word for word in value.strip("'").split() if not word.startswith(("file:", "/"))]
        name = key.rpartition(".")[2].replace("-", "_").upper()
        if words and name in {"INDEX_URL", "EXTRA_INDEX_URL", "TRUSTED_HOST", "PROXY", "TIMEOUT"}:
            found[f"PIP_{name}"] = " ".join(words)
    proxies = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    return found | proxies | {"PIP_CERT": CERTIFICATES, "SSL_CERT_FILE": CERTIFICATES}


def clone_into(root: Path) -> None:
    copy_tree(root / CLONE.lstrip("/"))


def enter(root: Path, environ: dict[str, str]) -> list[str]:
    """Return the command that runs another one in the root directory, isolated. Whatever it starts ends with it."""
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    given = [
        f"{name}={value}" for name, value in ({"PATH": PATH, "HOME": "/root"} | environ).items()
    ]
    return [*namespaces, "sh", "-c", ENTER, str(root), "env", "-i", "-C", CLONE, *given]
