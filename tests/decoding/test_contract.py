"""Test the functions that find out which protocols a decoder fulfils. Their results are cached by class."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tailrace.decoding.contract import (
    BlockDecoder,
    Decoder,
    EndingDecoder,
    FileDecoder,
    HoldingDecoder,
    SettlingDecoder,
    holds,
    packs,
    reads_files,
    settles,
    states_end,
)
from tailrace.decoding.formats import FORMATS

QUESTIONS = {
    packs: BlockDecoder,
    reads_files: FileDecoder,
    states_end: EndingDecoder,
    settles: SettlingDecoder,
    holds: HoldingDecoder,
}


@pytest.mark.parametrize("protocol", QUESTIONS.items(), ids=lambda pair: pair[0].__name__)
def test_remembered_answers_are_those_of_the_protocol(
    protocol: tuple[Callable[[Decoder], bool], type],
) -> None:
    asks, kept = protocol
    for _ in range(2):  # the second result comes from the cache
        for format_ in FORMATS.values():
            decoder = format_.decoder(4096, None)
            assert asks(decoder) == isinstance(decoder, kept), format_


def test_the_formats_differ_in_each_question_but_the_kernels() -> None:
    decoders = [format_.decoder(4096, None) for format_ in FORMATS.values()]
    for asks in (reads_files, states_end, settles, holds):
        assert {asks(decoder) for decoder in decoders} == {True, False}, asks
