"""Rights that are missing, and servers that refuse for another reason."""

from __future__ import annotations

import pytest

from tests.doctor.object_store.lying import LyingS3

CHECK = "endpoint rights"
LAST = "endpoint clean-up"


@pytest.mark.parametrize(
    ("right", "action"),
    [("put", "s3:PutObject"), ("get", "s3:GetObject"), ("list", "s3:ListBucket")],
)
def test_a_missing_right_is_named_and_the_rest_is_said_not_to_be_tested(examined, right, action):
    found = examined(refuses=[right])
    assert {*found} - {"endpoint clock"} == {"endpoint", CHECK, LAST}
    rights = found[CHECK]
    assert rights.severity == "problem"
    assert rights.what == f"{right} below s3://bucket/some/prefix: 403 AccessDenied."
    assert "were not tested" in rights.why
    assert rights.commands == [f"# allow {action} below s3://bucket/some/prefix for this key"]
    assert found[LAST].severity == "good"


def test_without_the_right_to_delete_all_is_tested_and_what_remains_is_said(examined):
    with LyingS3(refuses=["delete"]) as server:
        found = examined(server)
        left = sorted(server.objects)
    assert found[CHECK].what.startswith("delete below ")
    assert "not tested" not in found[CHECK].why
    assert found["conditional puts"].severity == "good"
    assert found["read after write"].figures["looks"] == 40
    assert found[LAST].severity == "problem"
    assert found[LAST].figures == {"remaining": 71}
    assert len(left) == 71
    assert "403 AccessDenied" in found[LAST].what


def test_one_cause_is_one_finding(examined):
    everything = ("put", "get", "list", "delete")
    error = (403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
    found = examined(refuses=everything, error=error)
    assert "put, get, list and delete below" in found[CHECK].what
    assert "AWS_SECRET_ACCESS_KEY does not belong" in found[CHECK].commands[0]
    assert found[LAST].severity == "problem"


def test_a_bucket_that_is_not_there_is_named(examined):
    error = (404, b"<Error><Code>NoSuchBucket</Code></Error>")
    found = examined(refuses=("put", "get", "list", "delete"), error=error)
    assert "404 NoSuchBucket" in found[CHECK].what
    assert "make the bucket" in found[CHECK].commands[0]
    assert found[LAST].severity == "good"
