"""Make DFTracer files from a seed. Most of their lines are usual (see `kernel_inputs`)."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

from tests.decoding.dftracer_lines import HOST

FILES = ("f1", "b2e02d81f03d4700", "7d031e3e0fa1a3c6", "")
TEXTS = (
    "read", "", "a name that is longer than eight", "Größe 電 😀", "tab\there", "back\\slash", 'quo"te', "{", "}}", "fhash",
    "\x7f", "12345678", "1234567é", "start", "end", "dftracer", "a,b:c",
)  # fmt: skip
BEGIN = b"".join(
    b'{"name":"%s","cat":"dftracer","type":1,"pid":7,"tid":7,"ph":4,"args":{"hhash":"%s","name":"%s","value":"%s"}}\n'
    % line for line in (
        (b"HH", HOST.encode(), b"vm", HOST.encode()), (b"CM", HOST.encode(), b"time_metric", b"US"),
        (b"FH", HOST.encode(), b"/data/a", b"f1"), (b"FH", HOST.encode(), "/data/Größe".encode(), b"b2e02d81f03d4700"),
    )
)  # fmt: skip


class Traced(NamedTuple):
    """Makes the lines of one process of a generated DFTracer file. `quoted`: whether `ph` is a text, as in releases
    before 2.2.
    """

    rng: random.Random
    ids: Iterator[int]
    quoted: bool

    def line(self) -> str:
        rng, what = self.rng, self.rng.random()
        if what < 0.05:
            return self.naming()
        if what < 0.08:
            return rng.choice(
                ("", "[", "]", "  ", "{", "x", "null", "{}", f"[{self.event()}", f"{self.event()} ")
            )
        return self.counter() if what < 0.2 else self.event()

    def naming(self) -> str:
        rng = self.rng
        kind = rng.choice(("FH", "FH", "FH", "HH", "SH", "XH"))
        value = rng.choice((*(f'"{each}"' for each in FILES), "5", "-0", "1.5", '"ü"'))
        phase = '"M"' if self.quoted else rng.choice(("4", '"M"', '"H"'))
        number = '"id":4,' if rng.random() < 0.02 else rng.choice(('"type":1,', ""))
        args = [
            f'"hhash":{rng.choice((chr(34) + HOST + chr(34), "5"))}',
            f'"name":"{rng.choice(TEXTS)}"',
            f'"value":{value}',
        ]
        if rng.random() < 0.1:
            rng.shuffle(args)
        if rng.random() < 0.05:
            args.append(rng.choice(args))
        return f'{{"name":"{kind}","cat":"dftracer",{number}"pid":7,"tid":7,"ph":{phase},"args":{{{",".join(args)}}}}}'

    def event(self) -> str:
        rng = self.rng
        number = rng.choice((0, -1, 1, 3, 2**63)) if rng.random() < 0.02 else next(self.ids)
        name, category = self.text("read"), self.text("POSIX")
        if rng.random() < 0.02:
            name, category = rng.choice(("start", "end")), "dftracer"
        kind = "" if self.quoted else f'"type":{rng.randrange(15)},'
        phase = '"X"' if self.quoted else "1"
        return (
            f'{{"id":{number},"name":"{name}","cat":"{category}",{kind}"pid":{self.number(7)},'
            f'"tid":{self.number(8)},"ts":{self.number(1795228349235613)},"dur":{self.number(5)},"ph":{phase}{self.args()}}}'
        )

    def counter(self) -> str:
        kind = "" if self.rng.random() < 0.5 else '"type":7,'
        phase = '"C"' if self.quoted else self.rng.choice("23")
        return (
            f'{{"name":"{self.text("cpu")}","cat":"{self.text("sys")}",{kind}"ts":{self.number(1795228349235613)},'
            f'"ph":{phase},"pid":0,"tid":0{self.args()}}}'
        )

    def args(self) -> str:
        rng = self.rng
        if rng.random() < 0.1:
            return ""
        members = [f'"hhash":{self.hash(HOST)}'] if rng.random() < 0.9 else []
        members += [
            f'"{self.text("ret")}":{self.value()}' for _ in range(rng.choice((0, 0, 1, 2, 5)))
        ]
        if rng.random() < 0.5:
            members.append(f'"fhash":{self.hash(rng.choice(FILES))}')
        if rng.random() < 0.05:
            members.append(
                rng.choice(
                    ('"dft_cnt":2', '"a":{"fhash":"f1"}', '"hhash":5', '"x":true', '"x":[1]')
                )
            )
        return f',"args":{{{",".join(members)}}}'

    def hash(self, usual: str) -> str:
        return (
            f'"{usual}"'
            if self.rng.random() < 0.95
            else self.rng.choice(("5692", "-5", "1.5", "10" * 12, '""'))
        )

    def value(self) -> str:
        rng = self.rng
        if rng.random() < 0.05:
            return rng.choice(
                (
                    "nan",
                    "-inf",
                    "-0",
                    "01",
                    "1.",
                    ".5",
                    "1e",
                    "1E+5",
                    "-1.5e-7",
                    "0x1",
                    "true",
                    "9" * 25,
                )
            )
        return rng.choice(
            (str(rng.randrange(-9, 10**6)), repr(rng.random()), f'"{self.text("v")}"')
        )

    def text(self, usual: str) -> str:
        return usual if self.rng.random() < 0.9 else self.rng.choice(TEXTS)

    def number(self, usual: int) -> int | str:
        return (
            usual
            if self.rng.random() < 0.98
            else self.rng.choice(
                (
                    0,
                    9,
                    10,
                    10**19,
                    2**63 - 1,
                    2**63,
                    2**64 - 1,
                    -1,
                    "-0",
                    "007",
                    '"7"',
                    1.5,
                    2**63 - 6,
                )
            )
        )


def dftracer(rng: random.Random) -> bytes:
    """Return a DFTracer file of a few lines. Most of them are usual events."""
    traced = Traced(rng, count(rng.choice((1, 1, 2))), rng.random() < 0.3)
    lines = "".join(f"{traced.line()}\n" for _ in range(rng.randrange(1, 9)))
    if rng.random() < 0.3:  # a merged file, with lines of several processes
        lines = re.sub('"pid":7,', lambda _: f'"pid":{rng.choice("77789")},', lines)
    return (BEGIN if rng.random() < 0.8 else b"") + lines.encode()
