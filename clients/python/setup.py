"""Build the compiled recorder. If there is no compiler, the package uses the recorder in Python, which does the same
more slowly.
"""

from __future__ import annotations

import sysconfig

from setuptools import Extension, setup

native = Extension(
    "tailrace_client._native",
    [
        f"src/tailrace_client/_native{part}.c"
        for part in ("", "_book", "_encode", "_record", "_recorder", "_span", "_traced")
    ],
    depends=["src/tailrace_client/_native.h"],
    py_limited_api=True,  # one for CPython 3.10 and all later ones
    # Debug information names the directory, and a wheel shall be the same wherever it is built.
    extra_compile_args=["-g0"],
    optional=True,
)
# The compiled recorder relies on the GIL, which a free-threaded Python does not have.
has_lock = not sysconfig.get_config_var("Py_GIL_DISABLED")
setup(
    ext_modules=[native] if has_lock else [],
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if has_lock else {},
)
