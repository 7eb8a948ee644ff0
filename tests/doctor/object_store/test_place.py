"""Where an endpoint is, by the options and variables that the collector's library knows."""

from __future__ import annotations

import socket

import pytest

from tailrace.doctor.finding import Finding
from tailrace.doctor.object_store.place import place_of
from tailrace.doctor.object_store.signing import Keys

KEYS = {"aws_access_key_id": "id", "aws_secret_access_key": "secret"}


def place(url="s3://bucket/a/b", environ=None, **options):
    return place_of(url, {**KEYS, **options}, environ or {})


def refusal(*args, **options):
    found = place(*args, **options)
    assert isinstance(found, Finding)
    assert found.severity == "problem"
    return found


def test_without_an_endpoint_it_is_that_of_aws():
    found = place(aws_region="eu-north-1")
    assert (found.endpoint, found.port) == ("https://s3.eu-north-1.amazonaws.com", 443)
    assert (found.base, found.prefix, found.region) == ("/bucket", "a/b/", "eu-north-1")
    assert place("s3://bucket").prefix == ""
    virtual = place(aws_virtual_hosted_style_request="true")
    assert (virtual.endpoint, virtual.base) == ("https://bucket.s3.us-east-1.amazonaws.com", "")


def test_an_endpoint_has_a_port_and_a_path():
    found = place(aws_endpoint_url="http://[::1]:9000/path/", aws_allow_http="TRUE")
    assert (found.endpoint, found.host, found.port) == ("http://[::1]:9000", "::1", 9000)
    assert found.base == "/path/bucket"
    assert found.addresses() == ["::1"]
    usual = place(endpoint="http://host:80", allow_http="1")
    assert usual.authority == "host"
    assert place(endpoint="https://host:80").authority == "host:80"


def test_options_override_variables_in_any_case():
    environ = {
        "AWS_REGION": "one",
        "AWS_ACCESS_KEY_ID": "other",
        "AWS_SESSION_TOKEN": "t",
        "REGION": "no",
    }
    found = place_of("s3://b", {"Aws_Access_Key_Id": "id", "SECRET_ACCESS_KEY": "s"}, environ)
    assert (found.region, found.keys) == ("one", Keys("id", "s", "t"))
    assert place(environ={"REGION": "no"}).region == "us-east-1"


def test_requests_need_no_keys_when_none_is_to_be_signed():
    assert place_of("s3://b", {"aws_skip_signature": "true"}, {}).keys is None


def test_without_keys_nothing_is_tested():
    found = place_of("s3://b", {"aws_access_key_id": "id"}, {})
    assert "no keys" in found.what
    assert found.commands == ["export AWS_ACCESS_KEY_ID=KEY AWS_SECRET_ACCESS_KEY=SECRET"]


def test_plain_http_must_be_allowed_as_the_library_demands():
    assert refusal(aws_endpoint_url="http://host").commands == ["export AWS_ALLOW_HTTP=true"]


@pytest.mark.parametrize(
    "endpoint", ["host:9000", "https://", "ftp://host", "https://host:port", "https://[::1"]
)
def test_an_endpoint_that_is_no_url_is_named(endpoint):
    assert endpoint in refusal(aws_endpoint_url=endpoint).what


@pytest.mark.parametrize("url", ["az://container/x", "file:///a", "s3://"])
def test_other_stores_are_said_not_to_be_tested(url):
    assert "others are not tested" in refusal(url).what


def test_a_secret_in_the_url_is_not_shown():
    assert place("s3://key:5ecr3t@bucket/x/").url == "s3://bucket/x"


def test_each_address_of_a_name_is_found_once(monkeypatch):
    def resolved(host, port, *args, **kwargs):
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (at, port))
            for at in ("10.0.0.1", "10.0.0.2", "10.0.0.1")
        ]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    assert place().addresses() == ["10.0.0.1", "10.0.0.2"]
