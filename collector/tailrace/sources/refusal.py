"""Why a connection was not taken or was cut off, a peer forgotten, or a datagram dropped: all causes there are."""

from __future__ import annotations

from enum import StrEnum


class Refusal(StrEnum):
    ADDRESS = "address not allowed"
    """It is not in the source's `allow`."""
    DESCRIPTORS = "out of descriptors"
    CONNECTIONS = "too many connections"
    CONNECTIONS_OF_ADDRESS = "too many connections from one address"
    CONNECTIONS_OF_USER = "too many connections from one user"
    TLS_HANDSHAKE = "tls handshake"
    """It failed: no TLS, none that is new enough, no certificate where one is demanded, one that
    has expired or that the authority has not signed; or the client did not want ours."""
    TLS = "tls error"
    """What came after the handshake is not TLS, or has been changed on its way."""
    NO_TOKEN = "no token"  # noqa: S105 - a cause
    """What it began with is no token's line, or a longer one than there may be."""
    WRONG_TOKEN = "wrong token"  # noqa: S105 - a cause
    GREETING = "greeting too slow"
    """The handshake and the token took longer than `greeting_timeout`."""
    IDLE = "idle"
    SLOW = "slow"
    """It took longer than `record_timeout` over one record."""
    GARBAGE = "garbage"
    """It sent `garbage_max` bytes without one readable record."""
    PENDING = "too many pending bytes"
    """Unfinished records of all connections came to more than `pending_max`, and it held the most."""
    PEERS = "too many peers"
    """The one silent longest was forgotten."""
    NEW_PEERS = "too many new peers"
    """A datagram of an unknown peer, beyond `new_peers_rate`."""
    OUTSIDE = "outside"
    """A file that its pattern reaches by a link only."""


_OF_CONNECTIONS = (
    Refusal.DESCRIPTORS, Refusal.CONNECTIONS, Refusal.IDLE, Refusal.SLOW, Refusal.GARBAGE,
    Refusal.PENDING,
)  # fmt: skip

OF_TYPE = {
    "udp": (Refusal.ADDRESS, Refusal.PEERS, Refusal.NEW_PEERS),
    "tcp": (
        *_OF_CONNECTIONS, Refusal.CONNECTIONS_OF_ADDRESS, Refusal.ADDRESS, Refusal.TLS_HANDSHAKE,
        Refusal.TLS, Refusal.NO_TOKEN, Refusal.WRONG_TOKEN, Refusal.GREETING,
    ),
    "unix": (*_OF_CONNECTIONS, Refusal.CONNECTIONS_OF_USER),
    "tail": (Refusal.OUTSIDE,),
}  # fmt: skip
"""Those that a source of each type may have."""
