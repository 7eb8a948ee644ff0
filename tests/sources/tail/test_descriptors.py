"""Which files stay open when there may be no more."""

from __future__ import annotations

import os
import resource

import pytest

from tailrace.sources.tail.descriptors import TailDescriptors
from tailrace.sources.tail.roots import Roots


def within(directory):
    roots = Roots(lambda _: ())
    roots.add(str(directory), is_file=False)
    return roots


@pytest.fixture
def three(tmp_path):
    """Three places for the files a to e."""
    for name in "abcde":
        (tmp_path / name).write_bytes(name.encode())
    descriptors = TailDescriptors(3, within(tmp_path))
    yield descriptors, lambda name: descriptors.open(name, str(tmp_path / name))
    descriptors.close_all()
    assert len(descriptors) == 0


def held(descriptors):
    return "".join(name for name in "abcde" if name in descriptors)


def test_the_one_used_longest_ago_is_closed(three):
    descriptors, open_ = three
    fds = {name: open_(name) for name in "abc"}
    assert not descriptors.spare
    assert descriptors.get("a") == fds["a"]
    assert os.pread(open_("d"), 9, 0) == b"d"
    assert held(descriptors) == "acd"
    assert descriptors.get("b") is None


def test_a_pinned_one_stays(three):
    descriptors, open_ = three
    for name in "abc":
        open_(name)
    descriptors.pin("a")
    descriptors.pin("d")
    open_("d")
    assert held(descriptors) == "acd"
    descriptors.unpin("a")
    open_("e")
    assert held(descriptors) == "cde"


def test_if_all_are_pinned_there_is_one_more(three):
    descriptors, open_ = three
    for name in "abc":
        open_(name)
        descriptors.pin(name)
    open_("d")
    assert held(descriptors) == "abcd"


def test_one_that_cannot_be_opened_closes_none(three):
    descriptors, open_ = three
    for name in "abc":
        open_(name)
    with pytest.raises(FileNotFoundError):
        open_("nowhere")
    assert held(descriptors) == "abc"


def test_half_of_what_the_process_may_have_is_the_most(tmp_path):
    (tmp_path / "a").write_bytes(b"")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
    try:
        descriptors = TailDescriptors(1000, within(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for number in range(70):
        descriptors.open(number, str(tmp_path / "a"))
    assert len(descriptors) == 64
    descriptors.close_all()
