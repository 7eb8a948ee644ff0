"""Endpoints behind TLS: the certificate is that of the endpoint's name, whichever address is asked."""

from __future__ import annotations

import socket
import ssl

import pytest
import trustme

from tailrace.clock import SystemClock
from tailrace.doctor.object_store.examination import examine
from tests.doctor.object_store.lying import LyingS3

NAME = "s3.example"


@pytest.fixture
def authority(tmp_path, monkeypatch):
    """The authority that this host trusts."""
    made = trustme.CA()
    made.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    return made


@pytest.fixture
def examined(monkeypatch):
    """Examine a server whose certificate is of this authority and name, at an endpoint called `NAME`."""

    def run(authority, name, **options):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(name).configure_cert(context)
        with LyingS3(tls=context) as server:
            found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", server.port))]
            known = socket.getaddrinfo
            monkeypatch.setattr(
                socket, "getaddrinfo",
                lambda host, *args, **kwargs: found if host == NAME else known(host, *args, **kwargs),
            )  # fmt: skip
            given = server.options | {"aws_endpoint_url": f"https://{NAME}:{server.port}"} | options
            findings = examine("s3://bucket/a", given, {}, SystemClock())
        return {finding.check: finding for finding in findings}

    return run


def test_the_certificate_is_that_of_the_name(authority, examined):
    found = examined(authority, NAME)
    assert {finding.severity.value for finding in found.values()} == {"good"}
    assert len(found) == 7


def test_a_certificate_of_another_name_is_refused(authority, examined):
    found = examined(authority, "other.example")
    assert {*found} == {"endpoint"}
    assert "the certificate: " in found["endpoint"].what
    assert NAME in found["endpoint"].what


def test_a_certificate_that_nobody_trusts_is_refused_unless_any_is_allowed(authority, examined):
    stranger = trustme.CA()
    assert examined(stranger, NAME)["endpoint"].severity == "problem"
    found = examined(stranger, NAME, aws_allow_invalid_certificates="true")
    assert found["conditional puts"].severity == "good"
