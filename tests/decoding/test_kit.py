"""The kit for authors of formats, `tailrace.testing`, finds each way to break the contract."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from msgspec.structs import replace

from tailrace.model.record import Kind, malformed
from tailrace.testing import TraceSample, check_format
from tests.formats.toy import FORMAT as TOY

LINES = b"n 31 main\nk 31\ne one\nm 3\nwhat?\ne path\n" + b"0" * 65 + b"\ne torn"
Decoder = type(TOY.decoder(1, None))
State = TOY.state_type


class Unbuffered(Decoder):
    def feed(self, data):
        return super().feed(data) + super().end()


class Skipping(Decoder):
    def feed(self, data):
        return [record for record in super().feed(data) if record.flaw != "bad_line"]


class Overlapping(Decoder):
    def feed(self, data):
        return [record._replace(offset=max(0, record.offset - 1)) for record in super().feed(data)]


class Forgetful(Decoder):
    @property
    def state(self):
        return replace(super().state, path="")


class Changing(Decoder):
    def __init__(self, limit, state=None):
        super().__init__(limit, state and replace(state, path=f"{state.path}x"))


class NothingPending(Decoder):
    pending = 0


class Keeping(Decoder):
    def give_up(self):
        return []


class Unlimited(Decoder):
    def __init__(self, limit, state=None):
        super().__init__(10**6, state)


class Holding(Decoder):
    holdings = (SimpleNamespace(what="names", held=8, evicted=0, give_way=lambda size: None),)


class Early(Decoder):
    def settle(self):
        return self.end()[:1] if self.pending > 1 else [malformed(0, b"", "bad_line")]


class Ending(Decoder):
    stream, lacking = "", "no_end"


class Other(Decoder):
    def feed(self, data):
        return [
            record._replace(detail=b"?" * record.size) if record.kind == Kind.MALFORMED else record
            for record in super().feed(data)
        ]


BROKEN = {
    Unbuffered: "must not depend on",
    Skipping: "must tile the input",
    Overlapping: "must tile the input",
    Forgetful: "a restored decoder must continue",
    Changing: "a restored decoder must have the same state",
    NothingPending: "`pending` must be",
    Keeping: "`give_up` must return the pending bytes",
    Unlimited: "too_long|must not exceed the limit",
    Holding: "`give_way` must free",
    Early: "`settle` must return|must tile the input|`size`",
    Ending: "`end` must report what `lacking` states",
    Other: "must have the bytes of the input",
}


def check(**changed):
    format_ = replace(TOY, **changed)
    check_format(format_, [TraceSample(format_, LINES, 64, path="/runs/a.toy")])


def test_the_toy_format_passes():
    check()


@pytest.mark.parametrize("decoder", BROKEN, ids=lambda decoder: decoder.__name__)
def test_a_broken_decoder_is_found(decoder):
    with pytest.raises(AssertionError, match=BROKEN[decoder]):
        check(decoder=decoder)


class Elsewhere(msgspec.Struct):
    waiting: bytes = b""


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        (
            {"malformed": TOY.malformed - {"bad_line"}},
            "'bad_line' is not in the format's `malformed`",
        ),
        ({"malformed": TOY.malformed | {"bad_word"}}, "no sample shows .* `malformed`: bad_word"),
        ({"flaws": frozenset({"odd"})}, "no sample shows .* `flaws`: odd"),
        (
            {"waiting": lambda state: Elsewhere(b"?")},
            "`waiting` must be the last of the pending",
        ),
    ],
    ids=["undeclared", "reason", "flaw", "waiting"],
)
def test_a_wrong_declaration_is_found(changed, rule):
    with pytest.raises(AssertionError, match=rule):
        check(**changed)


def test_an_exception_passes_through_with_the_sample():
    class Raising(Decoder):
        def give_up(self):
            raise KeyError("boom")

    with pytest.raises(KeyError) as raised:
        check(decoder=Raising)
    assert raised.value.__notes__[0].startswith("sample 0, b'n 31 main")


def test_samples_without_a_readable_record_prove_nothing():
    with pytest.raises(AssertionError, match="no sample has a readable record"):
        check_format(TOY, [])
