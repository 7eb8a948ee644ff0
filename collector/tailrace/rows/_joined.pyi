from tailrace.rows.block import Integers, Texts, Words

def integers(
    parts: list[Integers | list[int | None] | None], counts: list[int]
) -> tuple[bytes, bytearray | None]: ...
def texts(
    parts: list[Texts | list[str | None] | None], counts: list[int]
) -> tuple[bytes, bytes, bytearray | None]: ...
def words(
    parts: list[Words | list[str | None] | None], counts: list[int]
) -> tuple[bytes, list[str], bytearray | None]: ...
