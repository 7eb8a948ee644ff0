"""Run the decoder with a kernel and the Python decoder of a format side by side. They must agree after each step."""

from __future__ import annotations

import msgspec

from tailrace.decoding.formats import FORMATS
from tailrace.decoding.formats.dftracer.decoder import DFTracerDecoder
from tailrace.decoding.formats.et3.decoder import Et3Decoder
from tailrace.decoding.formats.heph.decoder import HephDecoder
from tailrace.decoding.formats.jets.decoder import JetsDecoder
from tailrace.decoding.formats.ovni.decoder import OvniDecoder
from tailrace.rows.block import Block
from tests.decoding.blockwise import by_line, current, units

PYTHON = {
    "dftracer": DFTracerDecoder,
    "et3": Et3Decoder,
    "heph": HephDecoder,
    "jets": JetsDecoder,
    "ovni": OvniDecoder,
}
LIMIT = 1 << 20


class Pair:
    """Two decoders of one format: one with its kernel, one in Python. If a path or a dialect is given, both decode a
    file.
    """

    def __init__(self, format_, limit=LIMIT, path=None, dialect="auto"):
        self._python, self._with_kernel = PYTHON[format_], FORMATS[format_].decoder
        self._limit, self._state_type = limit, FORMATS[format_].state_type
        self.python, self.kernel = self._python(limit, None), self._with_kernel(limit, None)
        if path is not None or dialect != "auto":
            self._each(lambda decoder: decoder.begin(path or "", dialect))

    def feed(self, *parts):
        """Pass each part to both decoders, and compare their records and states. Return the blocks and records of the
        decoder with the kernel.
        """
        found = []
        for part in parts:
            process = current(self.kernel)
            mixed = units(self.kernel, part)
            assert by_line(mixed, process) == self.python.feed(part)
            assert self.kernel.state == self.python.state
            found += mixed
        return found

    def exchange(self):
        """Replace each decoder by one that continues from a checkpoint of the other."""
        python, kernel = (
            msgspec.msgpack.decode(msgspec.msgpack.encode(each.state), type=self._state_type)
            for each in (self.python, self.kernel)
        )
        self.python = self._python(self._limit, kernel)
        self.kernel = self._with_kernel(self._limit, python)

    def document(self, name, data):
        self._each(lambda decoder: decoder.document(name, data))

    def give_way(self, size):
        self._each(lambda decoder: [each.give_way(size) for each in decoder.holdings])

    def give_up(self):
        self._each(lambda decoder: decoder.give_up())

    def end(self):
        return self._each(lambda decoder: decoder.end())

    def _each(self, do):
        answer = do(self.python)
        assert do(self.kernel) == answer
        assert self.kernel.state == self.python.state
        return answer


def rows(units):
    """Return the number of rows in the blocks among `units`."""
    return sum(unit.rows for unit in units if isinstance(unit, Block))
