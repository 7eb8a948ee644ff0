"""Test the functions that find out which protocols a decoder fulfils. Their results are cached by class."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tailrace.decoding.contract import (
    AskingDecoder,
    BlockDecoder,
    Decoder,
    EndingDecoder,
    FileDecoder,
    HoldingDecoder,
    QuickDecoder,
    SeparatingDecoder,
    SettlingDecoder,
    asked_names,
    asks,
    holds,
    is_quick,
    packs,
    reads_files,
    separates,
    settles,
    states_end,
)
from tailrace.decoding.formats import FORMATS

QUESTIONS = {
    asks: AskingDecoder,
    is_quick: QuickDecoder,
    packs: BlockDecoder,
    reads_files: FileDecoder,
    states_end: EndingDecoder,
    separates: SeparatingDecoder,
    settles: SettlingDecoder,
    holds: HoldingDecoder,
}


@pytest.mark.parametrize("protocol", QUESTIONS.items(), ids=lambda pair: pair[0].__name__)
def test_remembered_answers_are_those_of_the_protocol(
    protocol: tuple[Callable[[Decoder], bool], type],
) -> None:
    question, kept = protocol
    for _ in range(2):  # the second result comes from the cache
        for format_ in FORMATS.values():
            decoder = format_.decoder(4096, None)
            assert question(decoder) == isinstance(decoder, kept), format_


def test_the_formats_differ_in_each_question_but_the_kernels() -> None:
    decoders = [format_.decoder(4096, None) for format_ in FORMATS.values()]
    for question in (asks, reads_files, states_end, settles, separates, holds):
        assert {question(decoder) for decoder in decoders} == {True, False}, question


def test_only_a_decoder_with_keys_of_names_lacks_names() -> None:
    event = b'[\n{"id":1,"name":"x","cat":"y","pid":1,"tid":1,"ts":5,"dur":2,"ph":"X","args":{"hhash":"h","fhash":7}}\n'
    asking = FORMATS["dftracer"].decoder(4096, None)
    asking.feed(event)
    assert {*asked_names(asking)} == {"HH:h", "FH:7"}
    assert not asked_names(FORMATS["jets"].decoder(4096, None))
