"""Settings from environment variables."""

from __future__ import annotations

import pytest

from tailrace.config.check import NEEDED
from tailrace.config.environment import service_links
from tailrace.config.keys import SECTIONS
from tailrace.config.load import load
from tailrace.config.schema import Config, TailConfig, UdpConfig
from tailrace.configuration import transports
from tailrace.errors import ConfigError
from tests.docs.configuration import describe

SOURCES = {
    "udp": {"FORMAT": "heph", "LISTEN": "127.0.0.1:1"},
    "tcp": {"FORMAT": "heph", "LISTEN": "127.0.0.1:1"},
    "unix": {"FORMAT": "heph", "LISTEN": "/run/a.sock"},
    "tail": {"FORMAT": "heph", "PATHS": "/a"},
}
VALUES = {
    "string": ("a word", "a word"),
    "whole number": ("77", 77),
    "size": ("3KiB", 3072),
    "duration": ("7ms", 0.007),
    "list of strings": ("/a/*, /b", ["/a/*", "/b"]),
    'one of "debug", "info", "warning", "error"': ("error", "error"),
    'one of "console", "json"': ("json", "json"),
    "boolean": ("true", True),
    "listen": ("[::1]:5", "[::1]:5"),
    "allow": ("10.0.0.0/8, ::1", ["10.0.0.0/8", "::1"]),
    "format": ("jets", "jets"),
    "name": ("node-7", "node-7"),
    "mode": ("0660", "0660"),
    "pending_max": ("70MiB", 70 * 2**20),  # not less than a record
    "inflating_max": ("2MiB", 2 * 2**20),  # not less than files need in turn
}


def needed(prefix, key):
    """The values that must be given beside a key, in the environment."""
    others = {NEEDED[key], "tls_key"} if key in NEEDED else ()
    return {prefix + other.upper(): "a word" for other in others}


def source(name, type_):
    """The environment that declares a source of this type wholly."""
    prefix = f"TAILRACE_SOURCES_{name.upper()}_"
    return {prefix + key: value for key, value in ({"TYPE": type_} | SOURCES[type_]).items()}


def loaded_with(environ):
    return load(None, environ=environ, flags={}, formats=transports).config


@pytest.mark.parametrize(
    "key", [key for key in describe() if not key.section.startswith("sources")], ids=str
)
def test_every_key_of_a_section_arrives(key):
    variable = f"TAILRACE_{key.section}_{key.key}".upper()
    if key.type == "table of strings":
        variable, text, expected = f"{variable}_SOME_NAME", "x=y,z", {"some_name": "x=y,z"}
    else:
        text, expected = VALUES.get(key.key) or VALUES[key.type]
    if key.type.startswith("one of"):
        text, expected = VALUES[key.type]
    environ = needed(f"TAILRACE_{key.section.upper()}_", key.key)
    section = getattr(loaded_with(environ | {variable: text}), key.section)
    assert getattr(section, key.key) == expected
    assert getattr(section, key.key) != getattr(getattr(Config(), key.section), key.key)


@pytest.mark.parametrize(
    "key", [key for key in describe() if key.section.startswith("sources")], ids=str
)
def test_every_key_of_a_source_arrives_at_a_source_that_only_the_environment_has(key):
    type_ = key.section.removeprefix("sources (").removesuffix(")")
    environ = source("my_runs_2", type_)
    expected = type_
    if key.key != "type":
        text, expected = VALUES.get(key.key) or VALUES[key.type]
        if (type_, key.key) == ("unix", "listen"):
            text = expected = "/run/tailrace/heph.sock"
        environ |= needed("TAILRACE_SOURCES_MY_RUNS_2_", key.key)
        environ[f"TAILRACE_SOURCES_MY_RUNS_2_{key.key.upper()}"] = text
    found = loaded_with(environ).sources["my_runs_2"]
    if key.key == "type":
        assert found.__struct_config__.tag == type_
    else:
        assert getattr(found, key.key) == expected


def test_no_variable_can_be_taken_for_another():
    """The end of a source's variable is its key, and `_FILE` at the end is never part of one."""
    keys = {key.key for key in describe() if key.section.startswith("sources")}
    assert not [(a, b) for a in keys for b in keys if a.endswith(f"_{b}")]
    assert not [key for key in describe() if key.key.endswith("_file")]


def test_the_environment_changes_the_sources_there_are_and_adds_others(loaded):
    environ = {"TAILRACE_SOURCES_HEPH_UDP_LISTEN": "127.0.0.2:1"} | source("runs", "tail")
    sources = loaded_with(environ).sources
    assert [*sources] == ["heph_udp", "heph_tcp", "jets_tcp", "runs"]
    assert sources["heph_udp"] == UdpConfig(format="heph", listen="127.0.0.2:1")
    assert sources["runs"] == TailConfig(format="heph", paths=["/a"])
    text = "[sources.a]\ntype = 'udp'\nformat = 'heph'\nlisten = 'localhost:1'\n"
    sources = loaded(text, environ={"TAILRACE_SOURCES_A_FORMAT": "jets"}).config.sources
    assert sources == {"a": UdpConfig(format="jets", listen="localhost:1")}


def test_a_default_source_may_become_another_type():
    environ = {"TAILRACE_SOURCES_JETS_TCP_TYPE": "udp"}
    assert isinstance(loaded_with(environ).sources["jets_tcp"], UdpConfig)


def test_an_empty_variable_is_none_where_a_key_may_be_none(loaded):
    text = "[store]\nretention_age = '7 d'\n"
    environ = {"TAILRACE_STORE_RETENTION_AGE": ""}
    assert loaded(text).config.store.retention_age == 604_800
    assert loaded(text, environ=environ).config.store.retention_age is None


def test_none_is_a_word_where_a_key_may_be_none(loaded, problems):
    assert loaded("heartbeat.interval = 'none'").config.heartbeat.interval is None
    environ = {"TAILRACE_HEARTBEAT_INTERVAL": "none"}
    assert loaded("", environ=environ).config.heartbeat.interval is None
    assert len(problems("store.commit_interval = 'none'")) == 1


def test_an_entry_of_a_table_replaces_that_of_the_file_whatever_its_case(loaded):
    text = "[store.options]\nAWS_REGION = 'a'\nother = 'b'\n"
    options = loaded(text, environ={"TAILRACE_STORE_OPTIONS_AWS_REGION": "c"}).config.store.options
    assert options == {"other": "b", "aws_region": "c"}


def test_an_entry_does_not_hide_that_the_table_is_none(problems):
    environ = {"TAILRACE_STORE_OPTIONS_AWS_REGION": "c"}
    assert problems("store.options = 'x'", environ=environ) == [
        "FILE:1: store.options: must be a table of strings, not a string"
    ]


def test_a_value_may_be_in_a_file(tmp_path):
    secret = tmp_path / "secret"
    environ = {"TAILRACE_STORE_OPTIONS_KEY_FILE": str(secret)}
    for content, value in [
        ("\ufeffs3cr3t\n", "s3cr3t"),
        ("a\r\n", "a"),
        (" a\n\n", " a\n"),
        ("", ""),
    ]:
        secret.write_bytes(content.encode())
        assert loaded_with(environ).store.options == {"key": value}


def test_a_file_that_cannot_be_read_or_is_not_text_is_a_problem(problems, tmp_path):
    (tmp_path / "latin").write_bytes(b"\xe9")
    environ = {
        "TAILRACE_STORE_PATH_FILE": f"{tmp_path}/no",
        "TAILRACE_SPOOL_PATH_FILE": f"{tmp_path}/latin",
    }
    assert problems("", environ=environ) == [
        f"environment: TAILRACE_SPOOL_PATH_FILE: '{tmp_path}/latin' is not UTF-8; save it as UTF-8",
        f"environment: TAILRACE_STORE_PATH_FILE: '{tmp_path}/no' cannot be read: "
        "No such file or directory",
    ]


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("STORE_COMMIT_ROWS", "many", "must be a whole number, not 'many'"),
        ("STORE_COMMIT_ROWS", "", "must be a whole number, not ''"),
        ("STORE_COMMIT_ROWS", "9" * 19, "must be at least 1 and less than 2^63"),
        ("STORE_COMMIT_ROWS", "-1", "must be at least 1 and less than 2^63"),
        ("STORE_PATH", "\udcff", "must be UTF-8"),
        ("STORE_COMIT_ROWS", "1", "matches no key; did you mean TAILRACE_STORE_COMMIT_ROWS?"),
        ("STOR_COMMIT_ROWS", "1", "matches no key; did you mean TAILRACE_STORE_COMMIT_ROWS?"),
        ("LOG", "x", "matches no key; allowed: TAILRACE_LOG_LEVEL, TAILRACE_LOG_FORMAT"),
        ("LOG_LEVEL_FILE_FILE", "x", "matches no key; did you mean TAILRACE_LOG_LEVEL?"),
        (
            "STORE_OPTIONS",
            "x",
            "matches no key; did you mean TAILRACE_STORE_OPTIONS_<NAME>?",
        ),
        (
            "STORE_OPTIONS_",
            "x",
            "matches no key; did you mean TAILRACE_STORE_OPTIONS_<NAME>?",
        ),
        ("LOG_XYZ", "x", "matches no key; allowed: TAILRACE_LOG_LEVEL, TAILRACE_LOG_FORMAT"),
        (
            "SOURCES_MY_SIM_LISTN",
            "x",
            "matches no key; did you mean TAILRACE_SOURCES_MY_SIM_LISTEN?",
        ),
    ],
)
def test_a_mistake_is_named_with_its_variable(problems, variable, value, problem):
    variable = f"TAILRACE_{variable}"
    assert problems("", environ={variable: value}) == [f"environment: {variable}: {problem}"]


def test_a_source_of_the_environment_must_be_whole(problems):
    assert problems("", environ={"TAILRACE_SOURCES_X_TYPE": "tail"}) == [
        "environment: TAILRACE_SOURCES_X_FORMAT: missing; it is a string",
        "environment: TAILRACE_SOURCES_X_PATHS: missing; it is a list of strings",
    ]


def test_a_key_cannot_be_given_twice(problems, tmp_path):
    environ = {"TAILRACE_LOG_LEVEL": "info", "TAILRACE_LOG_LEVEL_FILE": "x"}
    assert problems("", environ=environ) == [
        "environment: TAILRACE_LOG_LEVEL_FILE: TAILRACE_LOG_LEVEL sets the same key; "
        "allowed: one of the two"
    ]


def test_variables_of_others_are_left_alone():
    environ = {
        "TAILRACE_ADDRESS": "x",
        "TAILRACE_CONFIG": "x",
        "TAILRACE_KERNELS": "x",
        "STORE_PATH": "x",
    }
    assert loaded_with(environ) == Config()


def kubernetes(service, number=9464, protocol="TCP"):
    """The variables of a service, as the kubelet makes them."""
    name = service.upper().replace("-", "_")
    url, port = f"{protocol.lower()}://10.0.0.1:{number}", f"{name}_PORT_{number}_{protocol}"
    return {
        f"{name}_SERVICE_HOST": "10.0.0.1", f"{name}_SERVICE_PORT": str(number),
        f"{name}_SERVICE_PORT_ADMIN_HTTP": str(number), f"{name}_PORT": url, port: url,
        f"{port}_PROTO": protocol.lower(), f"{port}_PORT": str(number), f"{port}_ADDR": "10.0.0.1",
    }  # fmt: skip


def docker(alias):
    """The variables of a container's link to another."""
    name = alias.upper().replace("-", "_")
    links = {
        n: value for n, value in kubernetes(alias).items() if not n.startswith(f"{name}_SERVICE_")
    }
    return links | {
        f"{name}_NAME": f"/job/{alias}",
        f"{name}_ENV_STORE_PATH": "/data",
        f"{name}_ENV_LANG": "C",
    }


@pytest.mark.parametrize("links", [kubernetes, docker])
@pytest.mark.parametrize(
    "service",
    ["tailrace", "tailrace-store-options-a", "tailrace-sources", "tailrace-sources-heph", "tailrace-sources-a-type"]
    + [f"tailrace-{section}" for section in [*SECTIONS, "stor", "metrics-service"]],
)  # fmt: skip
def test_a_service_of_our_name_is_no_configuration(service, links):
    environ = links(service)
    assert service_links(environ) == sorted(environ)
    assert loaded_with(environ) == Config()
    udp = kubernetes(service, 7701, "UDP") if links is kubernetes else {}
    assert loaded_with(environ | udp) == Config()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TAILRACE_ADMIN_PORT", "9464"), ("TAILRACE_METRICS_PORT", "http://10.0.0.1"),
        ("TAILRACE_STORE_NAME", "/a/b"),
        ("TAILRACE_STORE_ENV_PATH", "/a"), ("TAILRACE_COLLECTOR_NAME", "/a/b"), ("TAILRACE_SOURCES_A_PORT", "7"),
    ],
)  # fmt: skip
def test_a_mistake_that_looks_like_a_service_is_named(name, value):
    with pytest.raises(ConfigError) as caught:
        loaded_with({name: value})
    assert all(name in problem for problem in caught.value.problems)


@pytest.mark.parametrize("variable", ["TAILRACE_ADMIN_TOKENS", "TAILRACE_SOURCES_HEPH_TCP_TLS_KEY"])
def test_a_file_with_a_secret_is_not_taken_for_one_with_the_secrets_name(tmp_path, variable):
    """Its content would be shown in the message about a file that is not there."""
    secret = tmp_path / "tokens"
    secret.write_text("0123456789abcdef0123456789abcdef")
    with pytest.raises(ConfigError) as caught:
        loaded_with({f"{variable}_FILE": str(secret)})
    assert caught.value.problems == [
        f"environment: {variable}_FILE: the value is the name of a file already; allowed: {variable}"
    ]


@pytest.mark.parametrize("text", ["", "yes", "True", "1"])
def test_a_boolean_is_true_or_false(text):
    with pytest.raises(ConfigError, match=r"must be a boolean, not "):
        loaded_with({"TAILRACE_ADMIN_OPEN_TO_ALL": text})
    assert not loaded_with({"TAILRACE_ADMIN_OPEN_TO_ALL": "false"}).admin.open_to_all
