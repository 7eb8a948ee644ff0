"""Check that every listener can have its address.

The check binds each address for a moment; for a unix socket it examines the path. It skips addresses that
a daemon holds.
"""

from __future__ import annotations

import errno
import os
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tailrace.config.schema import TcpConfig, UdpConfig, UnixConfig
from tailrace.doctor.finding import Finding, Severity, good, setting
from tailrace.doctor.host import Host
from tailrace.sources.address import bound, cause, split
from tailrace.sources.unix import in_use
from tailrace.store.running import RunningCollector

CHECK = "addresses"

PRIVILEGED = 1024
"""Linux's default limit. The host's limit is in net.ipv4.ip_unprivileged_port_start."""


class ListeningSocket(NamedTuple):
    name: str
    listen: str
    kind: socket.SocketKind
    shared: bool = False


def check(host: Host) -> Iterator[Finding]:
    if host.daemon is not None:
        yield _running(host.daemon)
    held = host.daemon.addresses if host.daemon else {}
    free = []
    for listener in _listeners(host):
        if listener.name in held:
            continue
        try:
            bound(listener.listen, listener.kind, shared=listener.shared).close()
        except OSError as error:
            yield _refused(listener, error)
        else:
            free.append(listener.listen)
    for name, config in host.config.sources.items():
        if isinstance(config, UnixConfig) and name not in held:
            problem = _socket(name, Path(config.listen))
            if problem is None:
                free.append(config.listen)
            else:
                yield problem
    if free:
        yield good(CHECK, f"Free to listen on: {', '.join(dict.fromkeys(free))}.")


def _listeners(host: Host) -> Iterator[ListeningSocket]:
    for name, config in host.config.sources.items():
        if isinstance(config, UdpConfig):
            yield ListeningSocket(name, config.listen, socket.SOCK_DGRAM, config.reuse_port)
        elif isinstance(config, TcpConfig):
            yield ListeningSocket(name, config.listen, socket.SOCK_STREAM, config.reuse_port)
    yield ListeningSocket("admin", host.config.admin.listen, socket.SOCK_STREAM)


def _running(daemon: RunningCollector) -> Finding:
    places = ", ".join(f"{name} {address}" for name, address in daemon.addresses.items() if address)
    where = f" ({places})" if places else ""
    return good(
        CHECK,
        f"A collector runs on this store, process {daemon.pid}{where}. The checks do not disturb it.",
        pid=daemon.pid,
    )


def _refused(listener: ListeningSocket, error: OSError) -> Finding:
    host, port = split(listener.listen)
    why = cause(error)
    other = _moved(listener, f"127.0.0.1:{port}")
    free = _moved(listener, f"{listener.listen.rpartition(':')[0]}:0")  # the system chooses
    match error:
        case OSError(errno=errno.EADDRINUSE):
            flag = "u" if listener.kind == socket.SOCK_DGRAM else "t"
            commands = [f"sudo ss -ln{flag}p 'sport = :{port}'  # which one", free]
        case OSError(errno=errno.EACCES) if port < PRIVILEGED:
            why = f"this user may not use ports below {PRIVILEGED}"
            commands = [f"sudo sysctl -w net.ipv4.ip_unprivileged_port_start={port}", free]
        case OSError(errno=errno.EADDRNOTAVAIL):
            commands = ["ip -brief address  # those it has", other]
        case socket.gaierror():
            commands = [f"getent ahosts {host}", other]
        case _:
            commands = [free]
    return Finding(
        check=CHECK,
        severity=Severity.PROBLEM,
        what=f"{listener.name} cannot listen on {listener.listen}: {why}.",
        why="The collector does not start.",
        commands=commands,
        figures={"listen": listener.listen},
    )


def _socket(name: str, path: Path) -> Finding | None:
    """Return the problem that keeps a unix socket from being made at a path, if any."""
    shown, above = shlex.quote(str(path)), shlex.quote(str(path.parent))
    me = '"$(id -un)"'
    other = setting(name, "listen", f"$XDG_RUNTIME_DIR/{path.name}", source=True).replace("'", '"')
    try:
        if in_use(path):
            why, command = "another process does", f"sudo ss -lxp src {shown}  # which one"
        elif not path.parent.is_dir():
            why = f"{path.parent} does not exist"
            command = f"sudo install -d -o {me} {above}"
        elif not os.access(path.parent, os.W_OK | os.X_OK):
            why = f"this user may not write to {path.parent}"
            command = f"ls -ld {above}"
        else:
            return None
    except OSError as error:
        why, command = error.strerror or str(error), f"ls -ld {shown}"
    return Finding(
        check=CHECK,
        severity=Severity.PROBLEM,
        what=f"{name} cannot listen on {path}: {why}.",
        why="The collector does not start.",
        commands=[command, other],
        figures={"listen": str(path)},
    )


def _moved(listener: ListeningSocket, address: str) -> str:
    is_source = listener.name != "admin"
    return setting(listener.name, "listen", address, source=is_source)
