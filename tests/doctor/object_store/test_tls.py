"""Endpoints behind TLS."""

from __future__ import annotations

import ssl

import pytest
import trustme

from tailrace.clock import SystemClock
from tailrace.doctor.object_store import examine
from tests.doctor.object_store.lying import LyingS3

NAME = "localhost"


@pytest.fixture
def authority(tmp_path, monkeypatch):
    """The authority that this host trusts."""
    made = trustme.CA()
    made.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    return made


def examined(authority, name, **options):
    """Examine a server whose certificate is of this authority and name, at an endpoint called `NAME`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    with LyingS3(tls=context) as server:
        given = server.options | {"aws_endpoint_url": f"https://{NAME}:{server.port}"} | options
        findings = list(examine("s3://bucket/a", given, {}, SystemClock()))
    return {finding.check: finding for finding in findings}


def test_the_certificate_is_that_of_the_name(authority):
    found = examined(authority, NAME)
    assert {finding.severity.value for finding in found.values()} == {"good"}
    assert len(found) == 7


def test_a_certificate_of_another_name_is_refused(authority):
    found = examined(authority, "other.example")
    assert {*found} == {"endpoint"}
    assert "invalidcertificate notvalidforname" in found["endpoint"].what


def test_a_certificate_that_nobody_trusts_is_refused_unless_any_is_allowed(authority):
    stranger = trustme.CA()
    assert "unknownissuer" in examined(stranger, NAME)["endpoint"].what
    found = examined(stranger, NAME, aws_allow_invalid_certificates="true")
    assert found["conditional puts"].severity == "good"
