"""Where sources listen, known from the configuration alone, and sockets that are there before the rest is.

To load all that the daemon is made of takes 0.4 s of CPU, and a start does more. What is sent meanwhile
waits in the kernel if there is a socket, and is refused if there is none; so `hold` is to be called
first, and this module imports nothing that takes long.
"""

from __future__ import annotations

from contextlib import suppress

from tailrace.clock import Clock
from tailrace.config.listen import parse, parse_path
from tailrace.config.schema import (
    Config,
    SourceConfig,
    TailConfig,
    TcpConfig,
    UdpConfig,
    UnixConfig,
)
from tailrace.service_manager.descriptors import NOWHERE, Slot
from tailrace.sources.listening import Listening, of_connections, of_datagrams

Place = tuple[str, str, int, str]
"""Protocol, host and port, and of port 0, which is another one each time, the source's name; of a unix
socket, its path."""


def place_of(name: str, config: SourceConfig) -> Place:
    """Return where a source listens; of a source of files, what no other has."""
    if isinstance(config, TailConfig):
        return ("tail", "", 0, name)
    if isinstance(config, UnixConfig):
        return ("unix", parse_path(config.listen), 0, "")
    host, port = parse(config.listen)
    return (str(config.__struct_config__.tag), host, port, "" if port else name)


def address_of(config: UdpConfig | TcpConfig, slot: Slot = NOWHERE) -> Listening:
    """Return the address of a source, which is not ours yet."""
    if isinstance(config, UdpConfig):
        return of_datagrams(config.listen, slot, buffer=int(config.receive_buffer))
    return of_connections(config.listen, slot)


def hold(config: Config, clock: Clock) -> dict[Place, Listening]:
    """Bind the sockets of all sources that receive from a network, as far as they can be had.

    An address that cannot be had is left out: who starts its source says so. Unix sockets are left
    out because they are files, and a start that is refused must change none."""
    held: dict[Place, Listening] = {}
    for name, source in config.sources.items():
        if isinstance(source, UdpConfig | TcpConfig):
            address = address_of(source)
            with suppress(OSError):
                address.open()
                address.held_since = clock.wall_ns()
                held[place_of(name, source)] = address
    return held
