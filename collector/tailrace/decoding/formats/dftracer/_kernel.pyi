from tailrace.decoding.formats.dftracer.names import HashNames
from tailrace.rows.block import Block

class Scanner:
    def __init__(self) -> None: ...
    def scan(
        self,
        data: bytes,
        at: int,
        offset: int,
        size_max: int,
        rows_min: int,
        names: HashNames,
        processes: list[tuple[bytes, bytes, bool, bytes]],
        /,
    ) -> tuple[list[tuple[int, Block, bytes, bool]], int]: ...

def ranges(numbers: bytes) -> tuple[list[tuple[int, int]], int] | None: ...
