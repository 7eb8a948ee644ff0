"""Build the kernels, `collector/tailrace/**/_*.pyx`. Without a compiler Tailrace does the same in Python, more slowly.

The variable TAILRACE_KERNELS says what is built: unset, what can be built; `require`, all or nothing; `off`, nothing.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError

NEEDED = (
    "a C compiler, Python's headers and Cython (apt install gcc python3-dev; pip install cython)"
)

mode = os.environ.get("TAILRACE_KERNELS", "")
if mode not in {"", "off", "require"}:
    sys.exit(f'TAILRACE_KERNELS: {mode!r} is not allowed; allowed: "off", "require", or unset')
if sysconfig.get_config_var("Py_GIL_DISABLED"):
    # The kernels' tables are guarded by the GIL.
    if mode == "require":
        sys.exit("TAILRACE_KERNELS=require: kernels need a Python with a GIL; unset the variable")
    mode = "off"


class BuildKernels(build_ext):
    """Says what is missing when a kernel cannot be built."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.cython_c_in_temp = True  # the C code that Cython makes belongs beside the objects
        self.cython_include_dirs = ["collector"]

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except (CompileError, LinkError) as error:
            if mode == "require":
                what = f"TAILRACE_KERNELS=require: {ext.name} cannot be built: {error}"
                raise CompileError(f"{what}; it needs {NEEDED}") from error
            raise


def kernel(path: Path) -> Extension:
    """Return the extension that a .pyx file becomes."""
    module = path.relative_to("collector").with_suffix("")
    return Extension(
        ".".join(module.parts),
        [str(path)],
        depends=[str(shared) for shared in sorted(Path("collector").rglob("*.pxd"))],
        # Debug information names the directory, and a wheel shall be the same wherever it is built.
        extra_compile_args=["-O3", "-g0"],
        optional=mode != "require",
    )


def kernels() -> list[Extension]:
    """Return all extensions; none where kernels are off or Cython is not there."""
    if mode == "off":
        return []
    try:
        import Cython  # noqa: F401, PLC0415 - whether it is there
    except ImportError:
        if mode == "require":
            sys.exit(f"TAILRACE_KERNELS=require: Cython is missing; kernels need {NEEDED}")
        return []
    return [kernel(path) for path in sorted(Path("collector").rglob("_*.pyx"))]


setup(
    ext_modules=kernels(),
    cmdclass={"build_ext": BuildKernels},
)
