"""The compiled recorder. Without a compiler, or where it fails, all is the same and slower."""

from __future__ import annotations

import sysconfig

from setuptools import Extension, setup

native = Extension(
    "tailrace_client._native",
    ["src/tailrace_client/_native.c"],
    py_limited_api=True,  # one for CPython 3.10 and all later ones
    extra_compile_args=[
        "-g0"
    ],  # what debuggers want names the directory; a wheel is the same anywhere
    optional=True,
)
# It relies on the interpreter's lock, which a free-threaded Python has not.
has_lock = not sysconfig.get_config_var("Py_GIL_DISABLED")
setup(
    ext_modules=[native] if has_lock else [],
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if has_lock else {},
)
