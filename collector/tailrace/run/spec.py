"""Tell a node's collector what it is for, as the rank does that starts it."""

from __future__ import annotations

import msgspec


class NodeSpec(msgspec.Struct, kw_only=True):
    """A node's collector. `store` is its table's; `directory` has its certificate, log and traces."""

    config: str | None
    store: str
    directory: str
    node: str
    job: str | None
    size: int | None
    local_size: int | None
    max_loss: int
    certificate: str
    sign: str | None
    meeting: str = ""
