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
        numbered: bool,
        pid: bytes,
        host: bytes,
        /,
    ) -> tuple[Block | None, int, bytes, bool]: ...

def ranges(numbers: bytes) -> tuple[list[tuple[int, int]], int] | None: ...
