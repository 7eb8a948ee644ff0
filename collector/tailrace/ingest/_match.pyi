from collections.abc import Container

from tailrace.ingest.spans import OpenSpan
from tailrace.rows.block import Block, Integers

class Matching:
    def __init__(self, block: Block, opened: dict[int, OpenSpan]) -> None: ...
    def run(
        self, at: int, first: int, last: int, room: int, awaited: tuple[Container[int], ...], /
    ) -> tuple[
        int,
        int,
        tuple[Block, Integers | None, Integers | None] | None,
        list[OpenSpan],
        list[tuple[int, int, int | None]],
    ]: ...
