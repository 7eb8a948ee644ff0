"""Where sources listen, known from the configuration alone, and sockets bound before the rest starts.

Loading all modules of the daemon takes 0.4 s of CPU, and a start does more. Meanwhile the kernel
keeps what peers send if there is a socket, and refuses it if there is none. Call `hold` first,
therefore; this module imports nothing that takes long.
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
"""Protocol, host, port and name. Port 0 is another port each time, so the source's name tells such
places apart. An address that is shared has the name `shared`. A unix socket has its path as host."""


def place_of(name: str, config: SourceConfig) -> Place:
    """Return where a source listens. A source of files gets a place that no other has."""
    if isinstance(config, TailConfig):
        return ("tail", "", 0, name)
    if isinstance(config, UnixConfig):
        return ("unix", parse_path(config.listen), 0, "")
    host, port = parse(config.listen)
    if port:
        name = "shared" if config.reuse_port else ""
    return (str(config.__struct_config__.tag), host, port, name)


def address_of(config: UdpConfig | TcpConfig, slot: Slot = NOWHERE) -> Listening:
    """Return the address of a source, without opening it."""
    if isinstance(config, UdpConfig):
        return of_datagrams(
            config.listen, slot, buffer=int(config.receive_buffer), shared=config.reuse_port
        )
    return of_connections(config.listen, slot, shared=config.reuse_port)


def hold(config: Config, clock: Clock) -> dict[Place, Listening]:
    """Bind the sockets of all sources that receive from a network, as far as their addresses are
    available.

    Other addresses are left out: the start of their source reports them. Unix sockets are left out
    because they are files, and a start that is refused must change no file. So are addresses that are
    shared: a start that is refused must take no datagram from the collectors that run."""
    held: dict[Place, Listening] = {}
    for name, source in config.sources.items():
        if isinstance(source, UdpConfig | TcpConfig) and not source.reuse_port:
            address = address_of(source)
            with suppress(OSError):
                address.open()
                address.held_since = clock.wall_ns()
                held[place_of(name, source)] = address
    return held
