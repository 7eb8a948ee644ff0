"""All causes for refusing or ending a connection, forgetting a peer, dropping a datagram or leaving a
file alone.
"""

from __future__ import annotations

from enum import StrEnum


class Refusal(StrEnum):
    ADDRESS = "address not allowed"
    """The address is not in the source's `allow`."""
    DESCRIPTORS = "out of descriptors"
    CONNECTIONS = "too many connections"
    CONNECTIONS_OF_ADDRESS = "too many connections from one address"
    CONNECTIONS_OF_USER = "too many connections from one user"
    TLS_HANDSHAKE = "tls handshake"
    """The handshake failed. The peer spoke no TLS, or no version new enough; it showed no certificate
    where one is demanded, an expired one or one that the authority has not signed; or it refused
    ours."""
    TLS = "tls error"
    """Bytes after the handshake are not TLS, or were changed on their way."""
    NO_TOKEN = "no token"  # noqa: S105 - a cause
    """The first bytes are no token's line, or a longer line than is allowed."""
    WRONG_TOKEN = "wrong token"  # noqa: S105 - a cause
    GREETING = "greeting too slow"
    """The handshake and the token took longer than `greeting_timeout`."""
    USER = "another user"
    """With `same_user`: the socket at the other end belongs to another user."""
    USER_UNKNOWN = "unknown user"
    """With `same_user`: the kernel names no user of the socket at the other end, which is closed or on another host."""
    IDLE = "idle"
    SLOW = "slow"
    """One record took longer than `record_timeout`."""
    GARBAGE = "garbage"
    """The peer sent `garbage_max` bytes without one readable record."""
    PENDING = "too many pending bytes"
    """Unfinished records of all connections exceeded `pending_max`, and this connection held the
    most."""
    NEW_SESSIONS = "too many new sessions"
    """The peer's host began more sessions than `new_sessions_rate` allows."""
    PEERS = "too many peers"
    """The peer silent longest was forgotten."""
    NEW_PEERS = "too many new peers"
    """A datagram of an unknown peer came beyond `new_peers_rate`."""
    OUTSIDE = "outside"
    """A pattern reaches the file only by a link out of the pattern's root."""


_OF_CONNECTIONS = (
    Refusal.DESCRIPTORS, Refusal.CONNECTIONS, Refusal.IDLE, Refusal.SLOW, Refusal.GARBAGE,
    Refusal.PENDING, Refusal.NEW_SESSIONS,
)  # fmt: skip

OF_TYPE = {
    "udp": (
        Refusal.ADDRESS, Refusal.PEERS, Refusal.NEW_PEERS, Refusal.USER, Refusal.USER_UNKNOWN,
    ),
    "tcp": (
        *_OF_CONNECTIONS, Refusal.CONNECTIONS_OF_ADDRESS, Refusal.ADDRESS, Refusal.TLS_HANDSHAKE,
        Refusal.TLS, Refusal.NO_TOKEN, Refusal.WRONG_TOKEN, Refusal.GREETING, Refusal.USER,
        Refusal.USER_UNKNOWN,
    ),
    "unix": (*_OF_CONNECTIONS, Refusal.CONNECTIONS_OF_USER),
    "tail": (Refusal.OUTSIDE,),
}  # fmt: skip
"""The causes that a source of each type may have."""
