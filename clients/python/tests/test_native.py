"""Test that the compiled recorder behaves like the recorder in Python, and that it is built or left out as it should
be."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import example, given, settings, strategies as st

from clients.python.tests.recorders import PURE, native, recorder_of
from tailrace_client._tasks import SUBSTREAM

PROJECT = Path(__file__).parents[1]

TEXT = st.one_of(
    st.sampled_from(["step", "a", "", "tailrace.counter"]),
    st.text(max_size=20),
    st.text(st.characters(codec=None), max_size=5),  # includes lone surrogates
)
NUMBER = st.one_of(
    st.integers(-(2**65), 2**66),
    st.sampled_from([0, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1]),
)


class Broken:
    def __str__(self):
        raise RuntimeError("no")


class Text(str):
    __slots__ = ()


VALUE = st.one_of(
    NUMBER, st.booleans(), st.floats(), TEXT, st.none(), st.binary(max_size=5), TEXT.map(Text),
    st.lists(st.one_of(NUMBER, TEXT, st.floats()), max_size=5), st.tuples(NUMBER, NUMBER),
    st.lists(st.one_of(st.booleans(), st.none()), max_size=3), TEXT.map(ValueError),
    st.builds(Broken),
)  # fmt: skip
ATTRIBUTES = st.dictionaries(TEXT, VALUE, max_size=5)
TIME = st.one_of(NUMBER, st.floats(), st.none(), TEXT)
STREAM = st.one_of(st.none(), st.integers(0, 4), st.just(2**32 - 1))

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("event"), TEXT, ATTRIBUTES),
        st.tuples(st.just("counter"), TEXT, VALUE, ATTRIBUTES),
        st.tuples(st.just("span"), TEXT, ATTRIBUTES, ATTRIBUTES, st.booleans()),
        st.tuples(st.just("write"), st.one_of(TEXT, VALUE), TIME, TIME, ATTRIBUTES),
        st.tuples(st.just("use_stream"), STREAM),
        st.tuples(st.just("substream"), st.integers(0, 2**64 - 1)),
        st.tuples(st.just("thread"), STREAM, TEXT, ATTRIBUTES),
        st.tuples(st.just("take")),
        st.tuples(st.just("release"), st.integers(0, 500)),
        st.tuples(st.just("discard")),
        st.tuples(st.just("close")),
    ),
    max_size=30,
)


class Run:
    """A recorder that performs steps, and all observable effects of these steps."""

    def __init__(self, module, limit, chunk, longest):
        self.seen = []
        self.held = 0
        self.recorder = recorder_of(
            module, zero=2**40, limit=limit, chunk=chunk, longest=longest,
            started=lambda: self.seen.append("started"),
        )  # fmt: skip

    def take(self):
        chunks = self.recorder.take()
        self.held += sum(len(chunk.data) for chunk in chunks)
        self.seen.append(chunks)

    def release(self, size):
        self.recorder.release(min(size, self.held))
        self.held -= min(size, self.held)

    def span(self, name, attributes, more, fails):
        with suppress(KeyError), self.recorder.span(name, **attributes) as span:
            span.set(**more)
            if fails:
                {}[name]

    def thread(self, stream, name, attributes):
        tasks = []

        def work():
            tasks.append(Path(f"/proc/self/task/{threading.get_native_id()}"))
            if stream is not None:
                self.recorder.use_stream(stream)
            self.recorder.event(name, **attributes)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        while tasks[
            0
        ].exists():  # its stream is free for others once its locals are gone, after `join`
            time.sleep(0.001)

    def do(self, kind, *arguments):
        if kind in {"take", "release", "span", "thread"}:
            getattr(self, kind)(*arguments)
        elif kind == "substream":
            SUBSTREAM.set(*arguments)
        elif kind == "discard":
            self.recorder.discard("refused")
        elif kind in {"event", "counter"}:
            getattr(self.recorder, kind)(*arguments[:-1], **arguments[-1])
        else:
            getattr(self.recorder, kind)(*arguments)

    def all(self, steps):
        for step in steps:
            self.do(*step)
        SUBSTREAM.set(0)
        self.take()
        return self.seen, self.recorder.discarded, self.recorder.next_numbers()


@pytest.fixture(scope="module")
def compiled():
    return native() or pytest.skip("no C compiler")


@settings(max_examples=150, deadline=None)
@given(
    steps=STEPS,
    limit=st.sampled_from([300, 5_000, 2**22]),
    chunk=st.sampled_from([1, 200, 1432, 2**16]),
    longest=st.sampled_from([150, 65_507, 2**31]),
)
@example(  # too long for the memory and, with the report in front, for a packet
    steps=[("event", "step", {})] * 5 + [("counter", "step", 0, {}), ("event", "step", {"step": 0, "a": 0, "": 0})],
    limit=300, chunk=1, longest=150,
)  # fmt: skip
@example(  # the span is a byte longer than a packet may be, and shorter than what is left of the grant before
    steps=[("thread", None, "step", {}), ("span", "step", {}, {"step": 0, "a": 0, "": 0, "0": 0, "00": 0}, True)],
    limit=300, chunk=200, longest=150,
)  # fmt: skip
def test_both_recorders_do_the_same_byte_for_byte(compiled, steps, limit, chunk, longest):
    # The recorder in Python grants memory to each thread in advance. With several threads, memory granted to other
    # threads stays unused.
    if any(step[0] == "thread" for step in steps):
        limit = 2**26
    pure, fast = (Run(module, limit, chunk, longest).all(steps) for module in (PURE, compiled))
    assert fast == pure


@pytest.mark.parametrize("size", [32_767, 32_768, 65_535, 65_536])
def test_both_cut_what_is_too_long_alike(compiled, size):
    text = "é" * size
    steps = [("event", text, {text: text, "x": [text]}), ("event", "x" * size, {"y": "x" * size})]
    pure, fast = (Run(module, 2**22, 2**16, 2**31).all(steps) for module in (PURE, compiled))
    assert fast == pure


@pytest.mark.parametrize("names", [("span",), ("event",), ("counter", 1), ("write", 1, 2)])
def test_both_refuse_the_same_calls(compiled, names):
    kind, *rest = names
    for module in (PURE, compiled):
        for target in (module, recorder_of(module)):
            function = getattr(target, kind)
            with pytest.raises(TypeError):
                function()
            with pytest.raises(TypeError):
                function(*["x"] * (len(rest) + 3), "and one more", "and another")


def test_a_recorder_needs_all_its_options(compiled):
    for module in (PURE, compiled):
        with pytest.raises(TypeError):
            module.Recorder(iter([]).__next__, 0, limit=1, chunk=1, started=print)


# As it is built and chosen


def build(directory, **environ):
    """Build the package. Return the names of all files that the build creates."""
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build", "--build-base", str(directory)],
        cwd=PROJECT,
        env={**os.environ, "CFLAGS": "-O0", **environ},
        check=True,
        capture_output=True,
        timeout=120,
    )
    return {path.name for path in directory.rglob("*") if path.is_file()}


@pytest.mark.skipif(int(version("setuptools").split(".")[0]) < 80, reason="too old for the project")
def test_it_is_built_where_there_is_a_compiler_and_left_out_where_not(tmp_path):
    without = build(tmp_path / "without", CC="/bin/false")
    assert "_recorder.py" in without
    assert not any(name.endswith((".so", ".pyd")) for name in without)
    if native():
        assert "_native.abi3.so" in build(tmp_path / "with")


def test_the_compiled_one_is_chosen_unless_it_is_missing_or_unwanted(tmp_path, compiled):
    copy = tmp_path / "copy" / "tailrace_client"
    copy.mkdir(parents=True)
    for path in (PROJECT / "src" / "tailrace_client").glob("*.py"):
        (copy / path.name).symlink_to(path)
    program = (
        "from tailrace_client import _recording as r; print(r.compiled, r.Recorder.__module__,"
        "r.span('x') is r.OFF, isinstance(r.OFF, r.Span))"
    )

    def chosen(**environ):
        environ["PYTHONPATH"] = str(copy.parent)
        return subprocess.check_output([sys.executable, "-c", program], env=environ, text=True)

    assert chosen() == "False tailrace_client._recorder True True\n"
    (copy / "_native.abi3.so").symlink_to(compiled.__file__)
    assert chosen() == "True tailrace_client._native True True\n"
    assert chosen(TAILRACE_PURE="1") == "False tailrace_client._recorder True True\n"
