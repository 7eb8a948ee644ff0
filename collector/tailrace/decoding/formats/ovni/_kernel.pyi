from typing import Protocol

from tailrace.decoding.formats.ovni.names import Names
from tailrace.decoding.formats.ovni.order import EventOrder
from tailrace.decoding.formats.ovni.stack import StackState
from tailrace.rows.block import Block

class Thread(Protocol):
    @property
    def stack(self) -> StackState: ...
    @property
    def names(self) -> Names: ...
    @property
    def stream(self) -> str: ...
    @property
    def asks(self) -> bytes: ...
    @property
    def gives(self) -> bytes: ...
    @property
    def behind(self) -> bytes: ...

class Scanner:
    def __init__(self, plans: list[tuple[object, ...]], open_max: int, /) -> None: ...
    def scan(
        self,
        data: bytes,
        at: int,
        offset: int,
        order: EventOrder,
        thread: Thread,
        rows_min: int,
        /,
    ) -> tuple[Block | None, int]: ...
