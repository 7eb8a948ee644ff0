"""Labels of a run, which the client says in each announcement."""

from __future__ import annotations

import json
from collections.abc import Mapping

LABELS_BYTES_MAX = 400
"""Labels are in datagrams beside events, and a datagram may have as little as 1432 bytes."""


def checked(labels: Mapping[str, object]) -> dict[str, str]:
    """Return labels as texts, without those that are None. Raise ValueError if they are too long."""
    texts = {str(name): str(value) for name, value in labels.items() if value is not None}
    size = len(json.dumps(texts))
    if size > LABELS_BYTES_MAX:
        raise ValueError(f"labels of {size} bytes as JSON: at most {LABELS_BYTES_MAX} are possible")
    return texts
