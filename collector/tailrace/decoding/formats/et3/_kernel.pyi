from tailrace.decoding.formats.et3.form import Form
from tailrace.decoding.formats.et3.maps import MapNames
from tailrace.rows.block import Block

class Scanner:
    def __init__(
        self,
        agent: str,
        *,
        depth: int,
        threads: int,
        trust: int,
        doubt: int,
        time: int,
        clock: int,
    ) -> None: ...
    def scan(
        self,
        data: bytes,
        at: int,
        offset: int,
        size_max: int,
        rows_min: int,
        form: Form,
        names: MapNames,
        /,
    ) -> tuple[Block | None, int, bool]: ...
