"""Where an endpoint is, by the options and variables that the collector's library knows."""

from __future__ import annotations

import pytest

from tailrace.doctor.endpoint import place_of
from tailrace.doctor.finding import HostFinding

KEYS = {"aws_access_key_id": "id", "aws_secret_access_key": "secret"}


def place(url="s3://bucket/a/b", environ=None, **options):
    return place_of(url, {**KEYS, **options}, environ or {})


def refusal(*args, **options):
    found = place(*args, **options)
    assert isinstance(found, HostFinding)
    assert found.severity == "problem"
    return found


def test_without_an_endpoint_it_is_that_of_aws():
    found = place(aws_region="eu-north-1")
    assert found.endpoint == "https://s3.eu-north-1.amazonaws.com"
    assert (found.bucket, found.prefix, found.given["region"]) == ("bucket", "a/b", "eu-north-1")
    assert place("s3://bucket").prefix == ""
    virtual = place(aws_virtual_hosted_style_request="true")
    assert virtual.endpoint == "https://bucket.s3.us-east-1.amazonaws.com"


def test_an_endpoint_has_a_port_and_a_path():
    found = place(aws_endpoint_url="http://[::1]:9000/path/", aws_allow_http="TRUE")
    assert found.endpoint == "http://[::1]:9000/path"


def test_options_override_variables_in_any_case():
    environ = {
        "AWS_REGION": "one",
        "AWS_ACCESS_KEY_ID": "other",
        "AWS_SESSION_TOKEN": "t",
        "REGION": "no",
    }
    given = place_of("s3://b", {"Aws_Access_Key_Id": "id", "SECRET_ACCESS_KEY": "s"}, environ).given
    assert given == {
        "region": "one", "access_key_id": "id", "secret_access_key": "s", "session_token": "t",
    }  # fmt: skip
    assert place(environ={"REGION": "no"}).given["region"] == "us-east-1"


def test_requests_need_no_keys_when_none_is_to_be_signed():
    assert place_of("s3://b", {"aws_skip_signature": "true"}, {}).has("skip_signature")


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


@pytest.mark.parametrize(
    "endpoint", ["http://user:5ecr3t@host", "ftp://u:5ecr3t@host", "https://u:5ecr3t@h:x", "https://h/?key=5ecr3t"]
)  # fmt: skip
def test_a_secret_in_the_endpoint_is_not_shown(endpoint):
    found = refusal(aws_endpoint_url=endpoint, aws_allow_http="true")
    assert "5ecr3t" not in found.what
    assert found.commands == []


@pytest.mark.parametrize("option", ["aws_access_key_id", "aws_session_token", "aws_region"])
def test_a_value_that_no_request_can_carry_is_named_and_not_shown(option):
    found = refusal(**{option: "5ecr3t\n"})
    assert option.removeprefix("aws_") in found.what
    assert "5ecr3t" not in found.what


@pytest.mark.parametrize("endpoint", ["http://a b", "http://a{b", "http://host/a b"])
def test_an_endpoint_that_no_request_can_name_is_refused(endpoint):
    assert endpoint in refusal(aws_endpoint_url=endpoint, aws_allow_http="true").what


@pytest.mark.parametrize("url", ["az://container/x", "file:///a", "s3://"])
def test_other_stores_are_said_not_to_be_tested(url):
    assert "others are not tested" in refusal(url).what


def test_a_secret_in_the_url_is_not_shown():
    assert place("s3://key:5ecr3t@bucket/x/").url == "s3://bucket/x"
