"""The files of deploy/ and the Dockerfile speak of things that exist."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from tailrace.cli.commands import COMMANDS
from tailrace.config.load import load
from tailrace.config.schema import DEFAULT_SOURCES, AdminConfig, UdpConfig
from tailrace.configuration import transports
from tailrace.sources.listening import split
from tests.program import COMMAND, PROXIES, environment, run

ROOT = Path(__file__).parents[2]
COMPOSE = (ROOT / "deploy/compose.yaml").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
UNIT = (ROOT / "deploy/systemd/tailrace.service").read_text()
TEMPLATE = (ROOT / "deploy/systemd/tailrace@.service").read_text()
USER_UNIT = (ROOT / "deploy/systemd/user.service").read_text()
DAEMONSET = (ROOT / "deploy/kubernetes/daemonset.yaml").read_text()


def test_the_environment_of_the_compose_file_is_a_configuration():
    environ = dict(re.findall(r'^ +(TAILRACE_\w+): "(.*)"$', COMPOSE, re.MULTILINE))
    config = load(None, environ=environ, flags={}, formats=transports).config
    everywhere = "0.0.0.0"  # noqa: S104 - inside its container
    assert config.admin.listen == f"{everywhere}:9464"
    ports = {(type(s) is UdpConfig, split(s.listen)[1]) for s in DEFAULT_SOURCES.values()}
    listening = {(type(s) is UdpConfig, *split(s.listen)) for s in config.sources.values()}
    assert listening == {(udp, everywhere, port) for udp, port in ports}


@pytest.mark.skipif(
    shutil.which("docker-compose") is None,
    reason="no docker-compose: apt-get install docker-compose",
)
def test_compose_accepts_its_file_and_mounts_what_is_there():
    command = ["docker-compose", "--file", ROOT / "deploy/compose.yaml", "config"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    services = yaml.safe_load(done.stdout)["services"]
    assert set(services) == {"tailrace", "prometheus", "grafana"}
    assert Path(services["tailrace"]["build"]["context"]) == ROOT
    published = [port for service in services.values() for port in service["ports"]]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)
    volumes = [volume for service in services.values() for volume in service["volumes"]]
    mounted = [Path(volume.partition(":")[0]) for volume in volumes if volume.startswith("/")]
    assert len(mounted) == 3
    assert all(path.is_dir() for path in mounted)


def test_the_image_is_healthy_where_a_proxy_is_named(collectors):
    check = json.loads(re.search(r"^HEALTHCHECK .*\n  CMD (.*)$", DOCKERFILE, re.MULTILINE)[1])
    collector = collectors().start()
    _, port = collector.ports["admin"].rsplit(":", 1)
    assert check[0] == "python"
    command = [sys.executable, *(word.replace(":9464", f":{port}") for word in check[1:])]
    for proxies in ({}, PROXIES, PROXIES | {"no_proxy": "example.com", "NO_PROXY": "example.com"}):
        subprocess.run(command, env=environment() | proxies, check=True)
        top = [*COMMAND, "top", "--count", "1", "--json", "--store", collector.store]
        assert run(top, env=environment() | proxies, capture_output=True).returncode == 0
    collector.stop()
    assert subprocess.run(command, check=False, capture_output=True).returncode == 1


def test_every_way_is_in_the_readme_and_every_link_leads_somewhere():
    text = (ROOT / "deploy/README.md").read_text()
    linked = set(re.findall(r"\]\(([^)#]+)", text))
    assert all((ROOT / "deploy" / target).exists() for target in linked)
    assert {target.partition("/")[0] for target in linked} >= {
        path.name for path in (ROOT / "deploy").iterdir() if path.name != "README.md"
    }


def test_the_ports_are_the_default_ones():
    ports = {split(source.listen)[1] for source in DEFAULT_SOURCES.values()}
    ports.add(split(AdminConfig().listen)[1])
    exposed = re.search(r"^EXPOSE (.*)$", DOCKERFILE, re.MULTILINE)
    assert {int(port.split("/")[0]) for port in exposed[1].split()} == ports
    published = re.findall(r'"127\.0\.0\.1:(\d+):\d+(?:/udp)?"', COMPOSE.split("prometheus:")[0])
    assert set(map(int, published)) == ports


def test_the_template_is_the_unit_but_for_what_belongs_to_one_of_several():
    def settings(text):
        return {line for line in text.splitlines() if line and not line.startswith("#")}

    only = {
        "Description": "Tailrace trace collector %i",
        "Environment": "TAILRACE_COLLECTOR_NAME=%i",
        "ExecStartPre": "/usr/bin/env tailrace check /etc/tailrace/%i.toml",
        "ExecStart": "/usr/bin/env tailrace serve --config /etc/tailrace/%i.toml --store /var/lib/tailrace",
        "User": "tailrace",
        "RuntimeDirectory": "tailrace-%i",
    }
    lines = {f"{key}={value}" for key, value in only.items()}
    assert settings(TEMPLATE) - settings(UNIT) == lines
    keys = {line.partition("=")[0] for line in settings(UNIT) - settings(TEMPLATE)}
    assert keys == {"Description", "ExecStartPre", "ExecStart", "RuntimeDirectory"}


def test_the_unit_runs_commands_that_exist():
    commands = re.findall(r"^Exec\w+=/usr/bin/env tailrace (\w+)", UNIT, re.MULTILINE)
    assert commands == ["check", "serve"]
    assert set(commands) <= set(COMMANDS)


def test_the_daemonset_is_one_and_its_environment_a_configuration():
    (daemonset,) = yaml.safe_load_all(DAEMONSET)
    kubernetes_validate.validate(daemonset, "1.37", strict=True)
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    environ = {variable["name"]: variable["value"] for variable in container["env"]}
    config = load(None, environ=environ, flags={}, formats=transports).config
    listening = {(split(s.listen)[1], type(s) is UdpConfig) for s in config.sources.values()}
    listening.add((split(config.admin.listen)[1], False))
    ports = {(p["containerPort"], p.get("protocol") == "UDP") for p in container["ports"]}
    assert ports == listening


def test_the_policy_and_the_monitor_are_of_the_daemonsets_pods_and_ports():
    template = yaml.safe_load(DAEMONSET)["spec"]["template"]
    (container,) = template["spec"]["containers"]
    ports = {port["name"]: port.get("protocol", "TCP") for port in container["ports"]}
    policy = yaml.safe_load((ROOT / "deploy/kubernetes/networkpolicy.yaml").read_text())
    kubernetes_validate.validate(policy, "1.37", strict=True)
    monitor = yaml.safe_load((ROOT / "deploy/kubernetes/podmonitor.yaml").read_text())["spec"]
    labels = template["metadata"]["labels"]
    assert policy["spec"]["podSelector"]["matchLabels"] == labels
    assert monitor["selector"]["matchLabels"] == labels
    producers, scrapers = policy["spec"]["ingress"]
    opened = [
        {port["port"]: port.get("protocol", "TCP") for port in rule["ports"]}
        for rule in (producers, scrapers)
    ]
    scraped = {endpoint["port"]: "TCP" for endpoint in monitor["podMetricsEndpoints"]}
    assert opened[1] == scraped == {"admin": "TCP"}
    assert opened[0] | opened[1] == ports
    # The series that the alerts ask for, as in up{job="tailrace"}.
    assert labels[monitor["jobLabel"]] == "tailrace"
    assert 'up{job="tailrace"}' in (ROOT / "deploy/prometheus/alerts.yml").read_text()


def of_compose():
    """Return the variables of the compose file."""
    return yaml.safe_load(COMPOSE)["services"]["tailrace"]["environment"]


def of_the_daemonset():
    """Return the variables of the DaemonSet."""
    (container,) = yaml.safe_load(DAEMONSET)["spec"]["template"]["spec"]["containers"]
    return {variable["name"]: variable["value"] for variable in container["env"]}


@pytest.mark.parametrize("environ", [of_compose, of_the_daemonset])
def test_no_disk_is_filled_by_default(environ):
    config = load(None, environ=environ(), flags={}, formats=transports).config
    assert config.store.retention_size is not None
    assert (
        config.spool.max_size
        < load(None, environ={}, flags={}, formats=transports).config.spool.max_size
    )


def test_what_compose_starts_starts_anew_and_keeps_its_data():
    file = yaml.safe_load(COMPOSE)
    assert {service["restart"] for service in file["services"].values()} == {"unless-stopped"}
    mounted = [v.partition(":")[0] for s in file["services"].values() for v in s["volumes"]]
    assert (
        set(file["volumes"])
        == {"store", "metrics"}
        == set(mounted) - {v for v in mounted if "/" in v}
    )
    # The path in which Prometheus is told to keep what is bounded is the volume's.
    prometheus = file["services"]["prometheus"]
    assert "metrics:/prometheus" in prometheus["volumes"]
    assert "--storage.tsdb.path=/prometheus" in prometheus["command"]
    assert any(flag.startswith("--storage.tsdb.retention.size=") for flag in prometheus["command"])


PINNED = re.compile(r"[\w./-]+(:[\w.-]*\d[\w.-]*|@sha256:[0-9a-f]{64})")
VARIABLE = re.compile(r"\$\{(\w+):-(\S+)\}")


def test_no_image_is_the_latest():
    images = re.findall(r"^ +(?:image|\w+_IMAGE): (\S+)$", COMPOSE + DAEMONSET, re.MULTILINE)
    images += re.findall(r"^ARG \w+_IMAGE=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert len(images) == 6
    for image in images:
        assert PINNED.fullmatch(VARIABLE.sub(r"\2", image)), image
    begins = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert begins == ["${PYTHON_IMAGE}", "${PYTHON_IMAGE}"]


def test_the_dockerfile_is_for_any_python():
    """No path below a version of Python, no Python but the image's, and no distribution's package without its alternative."""
    rest = re.sub(r"^ARG .*$", "", DOCKERFILE, flags=re.MULTILINE)
    assert not re.search(r"python3?\.?\d*\.\d", rest)
    assert "TAILRACE_KERNELS=require" in rest
    assert rest.count("USER root") == rest.count("FROM ")
    assert {"apt-get", "dnf", "microdnf"} <= set(re.findall(r"[\w-]+", rest))


def test_every_image_can_be_named_by_its_digest():
    """The variables of the compose file and the Dockerfile's argument, as deploy/README.md names them."""
    variables = {name for name, _ in VARIABLE.findall(COMPOSE)}
    readme = (ROOT / "deploy/README.md").read_text()
    assert variables == {"PYTHON_IMAGE", "PROMETHEUS_IMAGE", "GRAFANA_IMAGE"}
    assert variables == set(re.findall(r"`(\w+_IMAGE)`", readme))
    assert "--build-arg PYTHON_IMAGE=" in readme
    ours = re.search(r"^ARG PYTHON_IMAGE=(\S+)$", DOCKERFILE, re.MULTILINE)[1]
    assert f"${{PYTHON_IMAGE:-{ours}}}" in COMPOSE


def test_what_the_dockerfile_copies_is_there():
    for sources in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE):
        for source in sources.split():
            default = re.sub(
                r"\$\{(\w+)\}", lambda name: re.search(rf"^ARG {name[1]}=(\S+)$", DOCKERFILE, re.MULTILINE)[1], source
            )  # fmt: skip
            assert (ROOT / default).exists(), source


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="no systemd-analyze: apt-get install systemd"
)
@pytest.mark.parametrize(
    ("manager", "name", "text"),
    [
        ("system", "tailrace.service", UNIT),
        ("system", "tailrace@.service", TEMPLATE),
        ("user", "tailrace.service", USER_UNIT),
    ],
    ids=["system", "template", "user"],
)
def test_systemd_accepts_the_units(manager, name, text, tmp_path):
    program = tmp_path / "tailrace"
    program.touch(mode=0o755)
    (tmp_path / name).write_text(text.replace("%h/.local/bin/tailrace", str(program)))
    drop_ins = tmp_path / f"{name}.d"
    drop_ins.mkdir()
    shutil.copy(ROOT / "deploy/systemd/networks.conf", drop_ins)
    unit = tmp_path / name.replace("@", "@second")
    verify = ["systemd-analyze", f"--{manager}", "verify", unit]
    environ = os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(verify, capture_output=True, text=True, check=False, env=environ)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="no systemd-analyze: apt-get install systemd"
)
def test_the_sandbox_leaves_little_open(tmp_path):
    unit = tmp_path / "tailrace.service"
    unit.write_text(UNIT)
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", unit],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool: apt-get install prometheus"
)
def test_prometheus_accepts_its_configuration():
    done = subprocess.run(
        ["promtool", "check", "config", ROOT / "deploy/prometheus/prometheus.yml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
