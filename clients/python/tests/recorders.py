"""Provide the recorder in Python and the compiled one, for tests of their common behaviour."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import sysconfig
import tempfile
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

import tailrace_client
from tailrace_client import _recorder, _span, _switch

NAMES = ("Recorder", "Span", "OFF", "switch", "span", "event", "counter", "write")
PURE = SimpleNamespace(
    **{
        name: next(vars(m)[name] for m in (_recorder, _span, _switch) if name in vars(m))
        for name in NAMES
    }
)
SOURCES = sorted(map(str, Path(tailrace_client.__file__).parent.glob("_native*.c")))


@lru_cache
def native():
    """Return the module with the compiled recorder, built from this tree or found at TAILRACE_NATIVE; None without a
    compiler."""
    path = os.environ.get("TAILRACE_NATIVE") or _compiled()
    if path is None:
        return None
    loader = importlib.machinery.ExtensionFileLoader("tailrace_client._native", path)
    spec = importlib.util.spec_from_file_location(loader.name, path, loader=loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _compiled():
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    directory = tempfile.TemporaryDirectory(prefix="tailrace-native-")
    path = f"{directory.name}/_native.abi3.so"
    command = [
        os.environ.get("CC", "cc"), "-O2", "-Wall", "-Wextra", "-Wno-cast-function-type", "-Werror",
        "-shared", "-fPIC", f"-I{sysconfig.get_path('include')}", *SOURCES, "-o", path,
    ]  # fmt: skip
    if sys.platform == "darwin":
        command += ["-undefined", "dynamic_lookup"]
    try:
        subprocess.run(command, check=True)
    except FileNotFoundError:
        return None
    sys.modules[__name__].directory = directory  # Keep the directory until the end of the process
    return path


def recorder_of(module, clock=None, zero=0, *, ticks=None, limit=2**22, chunk=2**16, **options):
    """Return a recorder whose clock advances by 10 with each reading."""
    if clock is None:
        readings = iter(range(zero + 10, 2**62, 10))
        clock = readings.__next__
    options = {"started": lambda: None, "filled": lambda: None} | options
    return module.Recorder(clock, zero, limit=limit, chunk=chunk, **options)
