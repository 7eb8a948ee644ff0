"""Check each setting against the schema. One run reports all problems of a configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from tailrace.config import listen
from tailrace.config.document import DEFAULT, ENVIRONMENT, Problem, Setting, Where
from tailrace.config.keys import (
    SECTIONS,
    SOURCES,
    Keys,
    alternatives,
    convert,
    hint,
    keys,
    keys_of_any,
    required_of_all,
    words,
)
from tailrace.config.schema import (
    INFLATING_MIN,
    OWN_SOURCE,
    Config,
    TailConfig,
    TcpConfig,
    UdpConfig,
    UnixConfig,
)

Transports = Callable[[], Mapping[str, Collection[str]]]
"""Function that returns, for each format, the types of sources that support it. It imports the decoders, so it is
called only if a format is configured."""

NEEDED = {
    "tls_certificate": "tls_key",
    "tls_key": "tls_certificate",
    "tls_client_authority": "tls_certificate",
}
"""For some keys of a listener: another key that must be set together with this key."""

_UNSAFE_PATH = re.compile(r"[][%\\*?\x00-\x1f\x7f]")
# The name of a collector is also the name of a directory, and the name of a source is also a value
# of a label of metrics.
_COLLECTOR_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
SOURCE_NAME = re.compile(r"[a-z0-9_]+")

KeyValues = dict[str, Any]
Settings = Mapping[str, Setting]


class Given:
    """All settings that the user has given. `begun` has for each source the location of its first setting."""

    def __init__(self) -> None:
        self.sections: dict[str, dict[str, Setting]] = {name: {} for name in SECTIONS}
        self.sources: dict[str, dict[str, Setting]] = {}
        self.begun: dict[str, Where] = {}


class Check:
    """A check of all settings of one configuration. It adds what it finds to `problems`."""

    def __init__(self, given: Given, formats: Transports) -> None:
        self.problems: list[Problem] = []
        self._given = given
        self._formats = formats

    def config(self) -> Config | None:
        """Check all settings. Return the configuration, or None if there are problems."""
        sections = {name: self._section(name) for name in SECTIONS}
        types = {name: self._type(name) for name in self._given.sources}
        sources = {name: self._source(name, type_) for name, type_ in types.items()}
        self._check_addresses(sections["admin"], types, sources)
        if self.problems:
            return None
        parts: KeyValues = {name: SECTIONS[name](**values) for name, values in sections.items()}
        typed = {name: SOURCES[type_] for name, type_ in types.items() if type_}
        parts["sources"] = {name: struct(**sources[name]) for name, struct in typed.items()}
        return Config(**parts)

    def _section(self, name: str) -> KeyValues:
        settings = self._given.sections[name]
        values = self._values(keys(SECTIONS[name]), settings)
        self._check_listener("tcp", values, settings)
        path = str(values.get("path", ""))
        if name == "store" and "://" not in path and (bad := _UNSAFE_PATH.search(path)):
            message = f"must not contain {bad[0]!r}: the table's library would misread it"
            self._problem(settings["path"].where, message)
        if name == "collector" and not _COLLECTOR_NAME.fullmatch(str(values.get("name", "main"))):
            message = "is not a valid name; allowed: at most 64 of a to z, 0 to 9, _ and -"
            self._problem(settings["name"].where, message)
        return values

    def _type(self, name: str) -> str | None:
        setting = self._given.sources[name].get("type")
        if setting is None:
            where = _below(self._given.begun[name], "type")
            self._problem(where, f"missing; allowed: {alternatives(SOURCES)}")
            return None
        if not isinstance(setting.value, str) or setting.value not in SOURCES:
            self._problem(setting.where, f"must be {alternatives(SOURCES)}")
            return None
        return setting.value

    def _source(self, name: str, type_: str | None) -> KeyValues:
        """Check the settings of a source. Return the values of its valid keys, without `type`. If the type is
        unknown, accept the keys of all types."""
        home = self._given.begun[name]
        if SOURCE_NAME.fullmatch(name) is None:
            self._problem(home, "is not a valid name for a source; allowed: a to z, 0 to 9 and _")
        if name == OWN_SOURCE:
            self._problem(home, "is reserved for the daemon's own rows; allowed: any other name")
        structs = [SOURCES[type_]] if type_ else [*SOURCES.values()]
        fields = keys_of_any(structs)
        settings = {k: s for k, s in self._given.sources[name].items() if k != "type"}
        for key in required_of_all(structs):
            if key not in settings:
                where = _below(home, key)
                self._problem(where, f"missing; it is a {words(fields[key].type)}")
        values = self._values(fields, settings, also=["type"])
        if type_ is not None:
            self._check_listener(type_, values, settings)
        if type_ is not None and "pending_max" in keys(SOURCES[type_]):
            self._check_pending(keys(SOURCES[type_]), values, settings)
        if values.get("inflating_max", INFLATING_MIN) < INFLATING_MIN:
            text = f"inflating_max ({values['inflating_max']}) is too small; allowed: at least {INFLATING_MIN}"
            self._problem(settings["inflating_max"].where, text)
        if "format" in values:
            self._check_format(str(values["format"]), type_, settings["format"].where)
        return values

    def _values(self, fields: Keys, settings: Settings, also: Collection[str] = ()) -> KeyValues:
        """Return the valid values of a section or source by key. Report unknown keys, except those in `also`, and
        invalid values."""
        values: KeyValues = {}
        for key, setting in settings.items():
            if key not in fields:
                self._problem(setting.where, f"unknown key; {hint(key, [*also, *fields])}")
                continue
            try:
                values[key] = convert(key, fields[key].type, setting.value)
            except ValueError as error:
                self._problem(setting.where, str(error))
        return values

    def _check_listener(self, protocol: str, values: KeyValues, settings: Settings) -> None:
        """Check the listen address. Remove an invalid one from `values`, so that it is reported only once. Check that
        TLS keys are set together, and that a listener open to other machines has access control."""
        try:
            if "listen" in values:
                _place(protocol, values["listen"])
        except ValueError as error:
            del values["listen"]
            self._problem(settings["listen"].where, str(error))

        def given(key: str) -> bool:
            """Return whether the user has set a key. An invalid value, whose problem is already reported, counts as
            set."""
            return key in settings and bool(values.get(key, True))

        for key, needed in NEEDED.items():
            if given(key) and not given(needed):
                self._problem(settings[key].where, f"needs {needed} as well")
        if protocol == "unix" or "listen" not in values:
            return
        host, _ = listen.parse(values["listen"])
        guards = ["allow"] if protocol == "udp" else ["tls_certificate", "allow"]
        if not listen.is_loopback(host) and not any(map(given, [*guards, "open_to_all"])):
            allowed = f"{' or '.join(guards)}, or open_to_all = true"
            where = settings["listen"].where
            self._problem(where, f"other machines can reach this address; allowed: {allowed}")

    def _check_format(self, format_: str, type_: str | None, where: Where) -> None:
        if where.origin == DEFAULT:
            return
        allowed = [name for name, types in self._formats().items() if (type_ or "tail") in types]
        if format_ not in allowed:
            carries = f"which a {type_} source can carry" if type_ else "which are all formats"
            self._problem(where, f"must be {alternatives(allowed)}, {carries}; not {format_!r}")

    def _check_pending(self, fields: Keys, values: KeyValues, settings: Settings) -> None:
        record = values.get("record_max", fields["record_max"].default)
        pending = values.get("pending_max", fields["pending_max"].default)
        if pending < record:
            key = "pending_max" if "pending_max" in settings else "record_max"
            text = f"pending_max ({pending}) is less than record_max ({record}); allowed: at least record_max"
            self._problem(settings[key].where, text)

    def _check_addresses(
        self,
        admin: KeyValues,
        types: Mapping[str, str | None],
        sources: Mapping[str, KeyValues],
    ) -> None:
        """Report listeners with the same address and protocol, except those on port 0. Conflicts with a wildcard
        address are detected only when the sockets are bound."""
        default = Setting(Config().admin.listen, Where(DEFAULT, None, "admin.listen"))
        setting = self._given.sections["admin"].get("listen", default)
        listeners = []
        if setting is default or "listen" in admin:
            listeners.append(("[admin]", "tcp", str(setting.value), setting.where))
        for name, values in sources.items():
            protocol = types[name]
            if protocol is not None and "listen" in values:
                where = self._given.sources[name]["listen"].where
                listeners.append((f"[sources.{name}]", protocol, values["listen"], where))
        taken: dict[tuple[str, str, int | None], tuple[str, Where]] = {}
        for owner, protocol, address, where in listeners:
            host, port = _place(protocol, address)
            other, other_where = taken.setdefault((protocol, host, port), (owner, where))
            if port != 0 and other != owner:
                at = other_where if where.origin == DEFAULT else where
                self._problem(at, f"{other} and {owner} listen on the same {protocol} address")

    def _problem(self, where: Where, message: str) -> None:
        self.problems.append(Problem(where, message))


def _place(protocol: str, address: str) -> tuple[str, int | None]:
    """Return an address in canonical form: host and port, or the path of a unix socket and None. Raise ValueError
    for an invalid address."""
    return (listen.parse_path(address), None) if protocol == "unix" else listen.parse(address)


def _below(home: Where, key: str) -> Where:
    """Return the location at which a missing `key` of a source is reported."""
    variable = home.origin == ENVIRONMENT
    return home._replace(key=f"{home.key}_{key}".upper() if variable else f"{home.key}.{key}")


OWN = 128
"""Number of file descriptors that a collector needs for the spool, the table, clients of the admin endpoint and the
upkeep process."""


def needed(config: Config) -> int:
    """Return the maximum number of file descriptors that a collector with this configuration needs."""
    total = OWN
    for source in config.sources.values():
        match source:
            case TcpConfig() | UnixConfig():
                total += 1 + source.connections_max
            case UdpConfig():
                total += 1  # all peers share one socket
            case TailConfig():
                total += source.descriptors_max
    return total


def too_few(config: Config, limit: int) -> str | None:
    """Return a message if a collector with this configuration may need more file descriptors than `limit`; otherwise
    None. A negative `limit` stands for no limit."""
    wanted = needed(config)
    if limit < 0 or limit >= wanted:
        return None
    return (
        f"{limit:,} descriptors may be open at a time; connections_max, descriptors_max and the collector's own"
        f" descriptors add up to {wanted:,}"
    )
