from tailrace.rows.block import Block

class Scanner:
    def __init__(self) -> None: ...
    def scan(
        self, data: bytes, at: int, offset: int, size_max: int, rows_min: int, /
    ) -> tuple[Block | None, int]: ...
