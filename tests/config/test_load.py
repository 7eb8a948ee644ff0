"""Test what a configuration file may say, and what is said about all else, line by line."""

from __future__ import annotations

import pytest

from tailrace.config.keys import SOURCES
from tailrace.config.load import load, spool_path, store_path
from tailrace.config.schema import (
    DEFAULT_SOURCES,
    Config,
    StoreConfig,
    TailConfig,
    TcpConfig,
    UdpConfig,
    UnixConfig,
)
from tailrace.configuration import transports
from tailrace.decoding.formats import FORMATS
from tailrace.errors import ConfigError

UDP = '[sources.sim]\ntype = "udp"\nformat = "heph"\nlisten = "127.0.0.1:1"\n'
UNIX = '[sources.local]\ntype = "unix"\nformat = "heph"\nlisten = "/run/heph.sock"\n'
TAIL = '[sources.runs]\ntype = "tail"\nformat = "ovni"\npaths = ["/a/*"]\n'

EVERYWHERE = "0.0.0.0"  # noqa: S104 - read, not bound
TCP = f'[sources.far]\ntype = "tcp"\nformat = "heph"\nlisten = "{EVERYWHERE}:1"\n'

GUARD_TCP = "other machines can reach this address; allowed: tls_certificate or allow, or open_to_all = true"
GUARD_UDP = "other machines can reach this address; allowed: allow, or open_to_all = true"
SIZES = "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB"
TYPES = 'one of "udp", "tcp", "unix", "tail"'

SETTINGS = [
    ("[stor]\n", "FILE:1: stor: unknown section; did you mean store?"),
    (
        "\n[xyz]\n",
        "FILE:2: xyz: unknown section; allowed: store, collector, spool, quarantine, ledger, "
        "admin, heartbeat, job, metrics, log, sources",
    ),
    ("level = 'info'\n", "FILE:1: level: unknown section; allowed: store, collector, spool, "
     "quarantine, ledger, admin, heartbeat, job, metrics, log, sources"),
    ("store = 5\n", "FILE:1: store: must be a section, as in [store], not a whole number"),
    ("[[store]]\n", "FILE:1: store: must be a section, as in [store], not an array"),
    ("[store]\ncommit_row = 5\n",
     "FILE:2: store.commit_row: unknown key; did you mean commit_rows?"),
    ("[log]\n\nxyz = 5\n", "FILE:3: log.xyz: unknown key; allowed: level, format"),
    ("[log]\n'a\\nb'.c = 5\n", 'FILE:2: log."a\\\\nb": unknown key; allowed: level, format'),
    ('[collector]\nname = "Node"\n', "FILE:2: collector.name: is not a valid name; allowed: at most 64 of "
     "a to z, 0 to 9, _ and -"),
    ('[collector]\nname = "../a"\n', "FILE:2: collector.name: is not a valid name; allowed: at most 64 of "
     "a to z, 0 to 9, _ and -"),
    ("[store]\npath = 5\n", "FILE:2: store.path: must be a string, not a whole number"),
    ("[store]\npath = 2026-01-01\n", "FILE:2: store.path: must be a string, not a date or a time"),
    ('[store]\npath = "a\\u0000"\n', "FILE:2: store.path: must not contain a NUL character"),
    ("[store]\ncommit_rows = '5'\n", "FILE:2: store.commit_rows: must be a whole number, not '5'"),
    ("[store]\ncommit_rows = 5.0\n",
     "FILE:2: store.commit_rows: must be a whole number, not a number with a fraction"),
    ("[store]\ncommit_rows = true\n",
     "FILE:2: store.commit_rows: must be a whole number, not a boolean"),
    ("[store]\ncommit_rows = 0\n",
     "FILE:2: store.commit_rows: must be at least 1 and less than 2^63"),
    ("[store]\ncommit_rows = -7\n",
     "FILE:2: store.commit_rows: must be at least 1 and less than 2^63"),
    (f"[store]\ncommit_rows = 0x{'f' * 9000}\n",
     "FILE:2: store.commit_rows: must be at least 1 and less than 2^63"),
    ("[store]\ncommit_bytes = 1048576\n",
     'FILE:2: store.commit_bytes: must be a size with its unit, as in "1 MiB", not a whole number'),
    ("[store]\ncommit_bytes = true\n",
     'FILE:2: store.commit_bytes: must be a size with its unit, as in "16 MiB", not a boolean'),
    ("[store]\ncommit_bytes = '1 MEG'\n",
     f"FILE:2: store.commit_bytes: '1 MEG' is not a size: a number and one of {SIZES}, "
     'as in "16 MiB"'),
    ("[store]\ncommit_bytes = '0 B'\n",
     "FILE:2: store.commit_bytes: must be at least 1 and less than 2^63"),
    ("[store]\ncommit_bytes = '9999999 TiB'\n",
     "FILE:2: store.commit_bytes: must be at least 1 and less than 2^63"),
    (f"[store]\ncommit_bytes = '{'9' * 400} B'\n",
     "FILE:2: store.commit_bytes: must be at least 1 and less than 2^63"),
    ("[store]\ncommit_interval = 5\n",
     'FILE:2: store.commit_interval: must be a duration with its unit, as in "5 s", '
     "not a whole number"),
    ("[store]\ncommit_interval = 1.5\n",
     'FILE:2: store.commit_interval: must be a duration with its unit, as in "1500 ms", '
     "not a number with a fraction"),
    ("[store]\ncommit_interval = nan\n",
     'FILE:2: store.commit_interval: must be a duration with its unit, as in "250 ms", '
     "not a number with a fraction"),
    ("[store]\ncommit_interval = '5'\n",
     "FILE:2: store.commit_interval: '5' is not a duration: a number and one of us, ms, s, min, h, "
     'd, as in "250 ms"'),
    ("[store]\ncommit_interval = '0 s'\n",
     "FILE:2: store.commit_interval: must be positive and at most 106751 d"),
    (f"[store]\nretention_age = '{'9' * 400} d'\n",
     "FILE:2: store.retention_age: is too large for a duration"),
    ("[store]\nretention_age = 'never'\n",
     "FILE:2: store.retention_age: 'never' is not a duration: a number and one of us, ms, s, min, "
     'h, d, as in "250 ms"'),
    ("[store]\noptions = 'secret'\n",
     "FILE:2: store.options: must be a table of strings, not a string"),
    ("[store.options]\nkey = 'secret'\nother = 5\n",
     "FILE:1: store.options: must contain only strings"),
    ("[log]\nlevel = 'loud'\n",
     'FILE:2: log.level: must be one of "debug", "info", "warning", "error", not \'loud\''),
    ("[log]\nlevel = 5\n",
     'FILE:2: log.level: must be one of "debug", "info", "warning", "error", not a whole number'),
    ("[admin]\nlisten = '127.0.0.1'\n",
     "FILE:2: admin.listen: '127.0.0.1' is not an address; allowed: host:port or [v6]:port"),
    ("sources = 5\n", "FILE:1: sources: must be a section, as in [sources], not a whole number"),
    ("[sources]\nsim = 5\n",
     "FILE:2: sources.sim: must be a section, as in [sources.name], not a whole number"),
    (UDP.replace("sim", "Sim"), "FILE:1: sources.Sim: is not a valid name for a source; "
     "allowed: a to z, 0 to 9 and _"),
    (UDP.replace("sim", "tailrace"), "FILE:1: sources.tailrace: is reserved for the daemon's own "
     "rows; allowed: any other name"),
    (UDP.replace("sim", '"a.b"'), 'FILE:1: sources."a.b": is not a valid name for a source; '
     "allowed: a to z, 0 to 9 and _"),
    (UDP.replace("udp", "pipe"), f"FILE:2: sources.sim.type: must be {TYPES}"),
    (UDP.replace("udp", "unix"), "FILE:4: sources.sim.listen: '127.0.0.1:1' is not the path of a "
     "socket; allowed: an absolute path"),
    (UNIX.replace("heph.sock", ""), "FILE:4: sources.local.listen: '/run/' is not the path of a "
     "socket; allowed: an absolute path"),
    (UNIX.replace("heph.sock", "ä" * 52),
     "FILE:4: sources.local.listen: is a path of 109 bytes; allowed: at most 107 for a socket"),
    (UNIX.replace("unix", "tcp"), "FILE:4: sources.local.listen: '/run/heph.sock' is not an "
     "address; allowed: host:port or [v6]:port"),
    (UNIX + UNIX.replace("local", "other").replace("run", "run/./"),
     "FILE:8: sources.other.listen: [sources.local] and [sources.other] listen on the same unix address"),
    (UNIX.replace("heph\"", "ovni\""),
     'FILE:3: sources.local.format: must be one of "heph", "jets", which a unix source can carry; '
     "not 'ovni'"),
    *((UNIX + f"mode = {mode}\n", f"FILE:5: sources.local.mode: {problem}") for mode, problem in [
        ("0o660", 'must be a string, as in "0660", not a whole number'),
        ("'rw'", "'rw' is not a file mode; allowed: octal, as in \"0660\""),
        ("'1660'", "'1660' is not a file mode; allowed: octal, as in \"0660\""),
        ("'0680'", "'0680' is not a file mode; allowed: octal, as in \"0660\""),
    ]),
    (UDP.replace('"udp"', "5"), f"FILE:2: sources.sim.type: must be {TYPES}"),
    (UDP.replace('type = "udp"\n', ""), f"FILE:1: sources.sim.type: missing; allowed: {TYPES}"),
    (UDP.replace('format = "heph"\n', ""), "FILE:1: sources.sim.format: missing; it is a string"),
    (TAIL.replace('paths = ["/a/*"]\n', ""),
     "FILE:1: sources.runs.paths: missing; it is a list of strings"),
    (TAIL.replace('["/a/*"]', '"/a/*"'),
     "FILE:4: sources.runs.paths: must be a list of strings, not a string"),
    (TAIL.replace('["/a/*"]', '["/a/*", 5]'),
     "FILE:4: sources.runs.paths: must contain only strings"),
    (TAIL.replace('"/a/*"', ""),
     "FILE:4: sources.runs.paths: must have at least one string, and no empty string"),
    (TAIL.replace('"/a/*"', '"a", ""'),
     "FILE:4: sources.runs.paths: must have at least one string, and no empty string"),
    (UDP.replace("heph", "ovni"),
     'FILE:3: sources.sim.format: must be one of "heph", "jets", which a udp source can carry; '
     "not 'ovni'"),
    (UDP.replace("udp", "tcp").replace("heph", "et3"),
     'FILE:3: sources.sim.format: must be one of "heph", "jets", which a tcp source can carry; '
     "not 'et3'"),
    (TAIL.replace("ovni", "otf2"),
     'FILE:3: sources.runs.format: must be one of "dftracer", "et3", "heph", "jets", "ovni", '
     "which a tail source can carry; not 'otf2'"),
    (UDP + 'paths = ["/a"]\n', "FILE:5: sources.sim.paths: unknown key; allowed: type, format, "
     "listen, allow, open_to_all, same_user, reuse_port, receive_buffer, record_max, peers_max, new_peers_rate, "
     "idle_timeout"),
    (UDP + 'receive_bufer = "1 MiB"\n',
     "FILE:5: sources.sim.receive_bufer: unknown key; did you mean receive_buffer?"),
    (UDP + UDP.replace("sim", "sam"),
     "FILE:8: sources.sam.listen: [sources.sim] and [sources.sam] listen on the same udp address"),
    (UDP.replace("127.0.0.1", "[::1]") + UDP.replace("sim", "sam").replace("127.0.0.1", "[0:0::1]"),
     "FILE:8: sources.sam.listen: [sources.sim] and [sources.sam] listen on the same udp address"),
    (UDP.replace("udp", "tcp").replace(":1", ":9464"),
     "FILE:4: sources.sim.listen: [admin] and [sources.sim] listen on the same tcp address"),
    ("[admin]\nlisten = '127.0.0.1:7702'\n",
     "FILE:2: admin.listen: [admin] and [sources.jets_tcp] listen on the same tcp address"),
    (TCP + "open_to_all = 1\n",
     "FILE:5: sources.far.open_to_all: must be a boolean, not a whole number"),
    (TCP + "allow = []\n", f"FILE:4: sources.far.listen: {GUARD_TCP}"),
    (TCP + "open_to_all = false\n", f"FILE:4: sources.far.listen: {GUARD_TCP}"),
    (TCP + "tokens = '/t'\n", f"FILE:4: sources.far.listen: {GUARD_TCP}"),
    (TCP.replace("tcp", "udp"), f"FILE:4: sources.far.listen: {GUARD_UDP}"),
    ("[admin]\nlisten = '[::]:1'\n", f"FILE:2: admin.listen: {GUARD_TCP}"),
    (TCP + "allow = ['10.0.0.1/8']\n",
     "FILE:5: sources.far.allow: '10.0.0.1/8' has bits set after its prefix; did you mean 10.0.0.0/8?"),
    (TCP + "tls_certificate = '/c'\n", "FILE:5: sources.far.tls_certificate: needs tls_key as well"),
    (TCP + "tls_certificate = '/c'\ntls_key = ''\n",
     "FILE:5: sources.far.tls_certificate: needs tls_key as well"),
    (UDP.replace("udp", "tcp") + "tls_key = '/k'\n",
     "FILE:5: sources.sim.tls_key: needs tls_certificate as well"),
    ("[admin]\ntls_client_authority = '/a'\n",
     "FILE:2: admin.tls_client_authority: needs tls_certificate as well"),
    (UDP.replace("udp", "tcp") + "pending_max = '1 MB'\n",
     "FILE:5: sources.sim.pending_max: pending_max (1000000 B) is less than record_max (1 MiB); "
     "allowed: at least record_max"),
    (UDP.replace("udp", "tcp") + "record_max = '65 MiB'\n",
     "FILE:5: sources.sim.record_max: pending_max (32 MiB) is less than record_max (65 MiB); "
     "allowed: at least record_max"),
    (TAIL + "inflating_max = '1 kB'\n",
     "FILE:5: sources.runs.inflating_max: inflating_max (1000 B) is too small; allowed: at least 1 MiB"),
    ("[store\n", "FILE:1: is not TOML: Expected ']' at the end of a table declaration"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "problem"), SETTINGS)
def test_a_mistake_is_named_with_its_line_and_what_is_allowed(problems, text, problem):
    assert problems(text) == [problem]


def test_all_mistakes_are_reported_together_in_the_order_of_their_lines(problems):
    text = (
        "[log]\nlevel = 'loud'\n[sources.a]\ntype = 'udp'\nlisten = 'x'\n[stor]\n[store]\n"
        "commit_rows = -1\ncommit_bytes = 5\n[sources.b]\ntipe = 'udp'\nformat = 'xml'\n"
    )
    environ = {"TAILRACE_SPOOL_MAX_SIZE": "5", "TAILRACE_SPOOL_MAX": "5"}
    found = problems(text, environ=environ, flags={"store": "\0"})
    assert [problem.split(": ")[:2] for problem in found] == [
        ["FILE:2", "log.level"],
        ["FILE:3", "sources.a.format"],
        ["FILE:5", "sources.a.listen"],
        ["FILE:6", "stor"],
        ["FILE:8", "store.commit_rows"],
        ["FILE:9", "store.commit_bytes"],
        ["FILE:10", "sources.b.type"],
        ["FILE:11", "sources.b.tipe"],
        ["FILE:12", "sources.b.format"],
        ["environment", "TAILRACE_SPOOL_MAX"],
        ["environment", "TAILRACE_SPOOL_MAX_SIZE"],
        ["--store", "must not contain a NUL character"],
    ]


def test_a_mistake_in_the_address_of_the_endpoint_does_not_make_a_second_one(problems):
    text = UDP.replace("udp", "tcp").replace(":1", ":9464") + "[admin]\nlisten = 5\n"
    assert problems(text) == ["FILE:6: admin.listen: must be a string, not a whole number"]


@pytest.mark.parametrize(
    "opening", ["{}", "store.{}", "store.path.{}", "[log]\nlevel = {{ {} }} #"]
)
def test_names_nested_however_deeply_are_a_problem_like_others(problems, opening):
    (problem,) = problems(opening.format("a" + ".a" * 5000 + " = 1"))
    assert problem.startswith("FILE:"), problem


def test_text_that_no_file_can_have_is_refused_wherever_it_is(problems):
    assert problems(TAIL.replace("/a/*", "a\\u0000")) == [
        "FILE:4: sources.runs.paths: must not contain a NUL character"
    ]
    assert problems("[store.options]\n'a' = 'a'\n\"\\u0000\" = 'b'") == [
        "FILE:1: store.options: must not contain a NUL character"
    ]


def test_the_widest_number_is_the_tables(loaded, problems):
    assert loaded("store.commit_rows = 9223372036854775807").config.store.commit_rows == 2**63 - 1
    assert problems("store.commit_rows = 9223372036854775808") == [
        "FILE:1: store.commit_rows: must be at least 1 and less than 2^63"
    ]


def test_no_file_is_the_defaults():
    assert load(None, environ={}, flags={}, formats=transports).config == Config()


def test_an_empty_file_is_the_defaults(loaded):
    assert loaded("").config == Config()


def test_the_sources_of_a_file_replace_the_default_ones(loaded):
    assert loaded(UDP).config.sources == {"sim": UdpConfig(format="heph", listen="127.0.0.1:1")}
    assert loaded("[sources]\n").config.sources == {}


def test_each_type_of_source_is_what_its_type_says(loaded):
    tcp = UDP.replace("sim", "logs").replace("udp", "tcp")
    sources = loaded(UDP + tcp + UNIX + TAIL + 'record_max = "3 MiB"\n').config.sources
    types = [UdpConfig, TcpConfig, UnixConfig, TailConfig]
    assert [type(source) for source in sources.values()] == types
    assert sources["runs"].record_max == 3 * 2**20


def test_the_same_port_on_another_protocol_and_port_zero_are_free(problems):
    tcp = UDP.replace("sim", "tcp").replace('"udp"', '"tcp"')
    zero = UDP.replace(":1", ":0")
    assert problems(UDP + tcp + zero.replace("sim", "a") + zero.replace("sim", "b")) == []


def test_a_format_says_which_sources_carry_it(problems):
    def formats():
        return {"sixth": ("tail",), "seventh": ("udp",)}

    assert problems(TAIL.replace("ovni", "sixth"), formats=formats) == []
    assert problems(UDP.replace("heph", "seventh"), formats=formats) == []
    assert problems(UDP.replace("heph", "sixth"), formats=formats) == [
        "FILE:3: sources.sim.format: must be one of \"seventh\", which a udp source can carry; not 'sixth'"
    ]


def test_the_built_in_sources_carry_their_formats():
    for source in DEFAULT_SOURCES.values():
        types = {type(source): name for name, struct in SOURCES.items()}
        assert types[type(source)] in FORMATS[source.format].transports


def test_an_option_counts_more_than_the_environment_and_that_more_than_the_file(loaded):
    text = "[store]\npath = 'file'\ncommit_rows = 1\ncommit_bytes = '1 B'\n"
    environ = {"TAILRACE_STORE_PATH": "environment", "TAILRACE_STORE_COMMIT_ROWS": "2"}
    store = loaded(text, environ=environ, flags={"store": "option"}).config.store
    assert store == StoreConfig(path="option", commit_rows=2, commit_bytes=1)
    assert loaded(text, environ=environ, flags={"store": None}).config.store.path == "environment"
    assert loaded(text).config.store.path == "file"


def test_a_mistake_that_is_overridden_does_not_count(problems):
    assert problems("[store]\npath = 5\n", flags={"store": "x"}) == []


def test_a_missing_file_is_a_problem(tmp_path):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "no.toml", environ={}, flags={}, formats=transports)
    assert caught.value.problems == [
        f"{tmp_path}/no.toml: cannot be read: No such file or directory"
    ]


def test_the_hash_is_over_what_counts_in_the_end(loaded):
    default = load(None, environ={}, flags={}, formats=transports).sha256
    assert loaded("# nothing\n[store]\ncommit_rows = 500000\n").sha256 == default
    assert loaded("[store]\ncommit_rows = 500001\n").sha256 != default
    assert loaded("[store]\ncommit_interval = '1000001 us'\n").sha256 != default
    assert (
        loaded("", environ={"TAILRACE_STORE_COMMIT_ROWS": "7"}).sha256
        == loaded("[store]\ncommit_rows = 7\n").sha256
    )


def test_the_hash_tells_nothing_of_secrets(loaded):
    hashes = [loaded(f"[store.options]\nkey = '{value}'\n").sha256 for value in "ab"]
    assert hashes[0] == hashes[1] != loaded("").sha256


def test_the_store_is_in_the_per_user_data_directory_unless_said_otherwise(loaded, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert store_path(Config(), {}) == "/home/me/.local/share/tailrace"
    assert store_path(Config(), {"XDG_DATA_HOME": "relative"}) == "/home/me/.local/share/tailrace"
    assert store_path(Config(), {"XDG_DATA_HOME": "/data"}) == "/data/tailrace"
    assert store_path(loaded("store.path = '~/traces'").config) == "/home/me/traces"
    assert store_path(loaded("store.path = 's3://a/b'").config) == "s3://a/b"


def test_the_spool_is_in_the_store_unless_said_otherwise(loaded):
    assert spool_path(loaded("store.path = '/a'").config) == "/a/spool"
    assert spool_path(loaded("store.path = '/a'\nspool.path = '/b'").config) == "/b"


def test_each_store_at_a_url_has_a_local_spool_of_its_own(loaded):
    data = {"XDG_DATA_HOME": "/data"}
    paths = [
        spool_path(loaded(f"store.path = 's3://a/{name}'").config, data)
        for name in ("b", "c", "b/")
    ]
    assert paths[0] == paths[2] != paths[1]
    assert all(path.startswith("/data/tailrace/spool-") for path in paths)


@pytest.mark.parametrize("character", ["[", "]", "%", "*", "?"])
def test_a_store_whose_path_the_table_would_misread_is_refused(character):
    with pytest.raises(ConfigError, match=r"--store: .*must not contain"):
        load(None, environ={}, flags={"store": f"/data/a{character}b"}, formats=transports)
    load(None, environ={}, flags={"store": f"s3://bucket/a{character}b"}, formats=transports)


GUARDS = ["allow = ['10.0.0.0/8']", "tls_certificate = '/c'\ntls_key = '/k'", "open_to_all = true"]


@pytest.mark.parametrize("guard", GUARDS)
def test_an_address_that_others_can_reach_is_allowed_with_a_guard(loaded, guard):
    loaded(f"{TCP}{guard}\n")
    loaded(f"[admin]\nlisten = '0.0.0.0:1'\n{guard}\n")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.9.9.9", "localhost", "a.localhost", "[::1]", "[::ffff:127.0.0.1]"]
)
def test_a_loopback_address_needs_no_guard(loaded, host):
    loaded(TCP.replace(EVERYWHERE, host))


@pytest.mark.parametrize("host", [EVERYWHERE, "[::]", "10.0.0.1", "[fe80::1%eth0]", "localhost.example", "node7", "[::ffff:10.0.0.1]"])  # fmt: skip
def test_any_other_address_needs_one(problems, host):
    assert problems(TCP.replace(EVERYWHERE, host)) == [f"FILE:4: sources.far.listen: {GUARD_TCP}"]
