"""The sources of the configuration and the addresses that they hold, whether they take in or not."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from urllib.parse import quote

from tailrace.clock import Clock
from tailrace.config.listen import parse_mode
from tailrace.config.schema import (
    Config,
    ConnectionConfig,
    SourceConfig,
    TailConfig,
    TcpConfig,
    UdpConfig,
    UnixConfig,
)
from tailrace.decoding.formats import FORMATS
from tailrace.errors import ConfigError
from tailrace.security.guard import guard
from tailrace.service_manager.descriptors import Descriptors, Slot
from tailrace.sources.connections import ConnectionSource
from tailrace.sources.listeners import TcpListener, UnixListener, UnixListening
from tailrace.sources.listening import Listening, Place, address_of, names_users, place_of, refusal
from tailrace.sources.source import Source
from tailrace.sources.tail import Chosen, TailSource
from tailrace.sources.udp import UdpSource


class Configured:
    """`sources` by name, of the configuration that runs.

    With `once`, sources are there for what they find now and no longer, and sources of files read what is
    `chosen`. `descriptors` keep the sockets while no process has them; sockets in `held` are there already.
    Raise ConfigError for a source that cannot be had."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        *,
        once: bool,
        chosen: Chosen | None,
        descriptors: Descriptors,
        held: Mapping[Place, Listening],
    ) -> None:
        self._clock = clock
        self._once = once
        self._chosen = chosen
        self._descriptors = descriptors
        self._listening = dict(held)
        self.sources: dict[str, Source] = {}
        for name, wanted in config.sources.items():
            self.sources[name] = self._source(name, wanted, self._listening)

    def renew(self, name: str, config: SourceConfig) -> None:
        """Replace a source that has ended by a new one of the same name. Raise ConfigError."""
        self.sources[name] = self._source(name, config, self._listening)

    def give_up(self, name: str, config: SourceConfig) -> None:
        """Give up the address of a source that has ended."""
        self._listening[place_of(name, config)].give_up()

    def in_the_way(self, now: Mapping[str, SourceConfig], config: Config) -> list[str]:
        """Return the sources that have a port of which another configuration wants another address."""
        places = {place_of(name, wanted) for name, wanted in config.sources.items()}
        wanted = {(p[0], p[2]) for p in places - self._listening.keys() if p[2]}
        have = {name: place_of(name, source) for name, source in now.items()}
        return [
            name for name, place in have.items()
            if place not in places and (place[0], place[2]) in wanted
        ]  # fmt: skip

    def prepare(
        self, config: Config, stays: Collection[str]
    ) -> tuple[dict[str, Source], dict[Place, Listening]]:
        """Return the sources of another configuration and their addresses, which are ours by then. Sources
        in `stays` are those of now. Raise ConfigError with every problem."""
        sources: dict[str, Source] = {}
        listening: dict[Place, Listening] = {}
        problems: list[str] = []
        for name, wanted in config.sources.items():
            try:
                if name in stays:
                    sources[name] = self.sources[name]
                    self._hold(name, wanted, listening)
                else:
                    sources[name] = self._source(name, wanted, listening)
                if (place := place_of(name, wanted)) in listening:
                    listening[place].open()
            except OSError as error:
                problems += refused(name, wanted, error).problems
            except ConfigError as error:
                problems += error.problems
        if problems:
            for place, held in listening.items():
                if place not in self._listening:
                    held.give_up()
            raise ConfigError(problems)
        return sources, listening

    def put(self, sources: Mapping[str, Source], listening: dict[Place, Listening]) -> None:
        """Take over what `prepare` returned, and give up all other addresses."""
        self.sources.clear()
        self.sources.update(sources)
        gone = [held for place, held in self._listening.items() if place not in listening]
        self._listening = listening
        for held in gone:
            held.give_up()

    def close_rest(self) -> None:
        """Close the kept sockets that no source wants."""
        self._descriptors.close_rest()

    def close(self) -> None:
        """Close all addresses."""
        for listening in self._listening.values():
            listening.close()

    def _source(self, name: str, config: SourceConfig, listening: dict[Place, Listening]) -> Source:
        """Return a source that does not run; its address goes into `listening`. Raise ConfigError."""
        if isinstance(config, TailConfig):
            _check_dialect(name, config)
            return TailSource(name, config, self._clock, once=self._once, chosen=self._chosen)
        if isinstance(config, UdpConfig | TcpConfig) and config.same_user and not names_users():
            problem = (
                "this host does not name the users of sockets: allow AF_NETLINK, or remove the key"
            )
            raise ConfigError([f"sources.{name}.same_user: {problem}"])
        held = self._hold(name, config, listening)
        if isinstance(config, UdpConfig):
            return UdpSource(name, config, self._clock, held)
        if isinstance(config, TcpConfig):
            guarded = guard(f"sources.{name}", config, self._clock)
            return ConnectionSource(config, TcpListener(config, guarded, held))
        unix = UnixListener(Path(config.listen), parse_mode(config.mode), held)
        return ConnectionSource(config, unix)

    def _hold(
        self, name: str, config: SourceConfig, listening: dict[Place, Listening]
    ) -> Listening | None:
        """Return a source's address, now in `listening`: the one that is held already, or a new one."""
        if isinstance(config, TailConfig):
            return None
        place = place_of(name, config)
        held = self._listening.get(place)
        if held is None:
            # A listener on port 0 has no address that is known before, so no other socket can have it.
            slot = self._descriptors.slot(
                _slot_name(place), anywhere=place[0] == "unix" or place[2] > 0
            )
            held = _listening(config, slot)
        listening[place] = held
        held.kept = True
        return held


def refused(name: str, config: SourceConfig, error: BaseException) -> ConfigError:
    """Return the error to raise for a source that could not start."""
    if isinstance(config, TailConfig) or not isinstance(error, OSError):
        return ConfigError([f"sources.{name}: {error}"])
    return refusal(f"sources.{name}.listen", config.listen, error)


def _listening(config: UdpConfig | ConnectionConfig, slot: Slot) -> Listening:
    if isinstance(config, UnixConfig):
        return UnixListening(Path(config.listen), parse_mode(config.mode), slot)
    return address_of(config, slot)


def _slot_name(place: Place) -> str:
    """Return what the service manager calls the socket of a place."""
    return ".".join(quote(str(part), safe="/") for part in place if part)


def _check_dialect(name: str, config: TailConfig) -> None:
    dialects = ("auto", *FORMATS[config.format].dialects)
    if config.dialect not in dialects:
        allowed = ", ".join(dialects)
        raise ConfigError([f"sources.{name}.dialect: must be one of {allowed} for {config.format}"])
