from __future__ import annotations

import subprocess
import sys

import tailrace_client


def test_the_public_names_are_these():
    assert tailrace_client.__all__ == [
        "Credentials",
        "Emitter",
        "JetsWriter",
        "Span",
        "close",
        "compiled",
        "connect",
        "counter",
        "event",
        "flush",
        "hand_on",
        "span",
        "substream",
        "take_up",
        "traced",
        "use_stream",
        "write",
    ]
    assert all(hasattr(tailrace_client, name) for name in tailrace_client.__all__)


def test_importing_it_starts_nothing_and_imports_only_the_standard_library():
    program = (
        "import sys, threading; before = set(sys.modules); import tailrace_client;"
        "own = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "known = {*sys.stdlib_module_names, '_xxsubinterpreters'};"  # a module of CPython that the list lacks
        "print(own - known, threading.active_count())"
    )
    output = subprocess.check_output(
        [sys.executable, "-c", program], env={"PYTHONPATH": ":".join(sys.path)}, text=True
    )
    assert output == "{'tailrace_client'} 1\n"


def test_the_compiled_part_stays_unused_where_there_is_no_global_lock():
    """A free-threaded Python has a `t` among its flags. A manual test with 3.13 showed that the compiled module cannot
    be imported there."""
    program = (
        "import sys; sys.abiflags = 't'; import tailrace_client; print(tailrace_client.compiled)"
    )
    output = subprocess.check_output(
        [sys.executable, "-c", program], env={"PYTHONPATH": ":".join(sys.path)}, text=True
    )
    assert output == "False\n"
