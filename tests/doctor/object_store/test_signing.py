"""Signatures, beside those that AWS publishes in its documentation of S3 (Authorization header, examples)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tailrace.doctor.object_store.signing import Keys, StoreRequest, sign

KEYS = Keys("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
NOW = int(datetime(2013, 5, 24, tzinfo=UTC).timestamp()) * 10**9
HOST = {"host": "examplebucket.s3.amazonaws.com"}


def signed(request, keys=KEYS):
    return sign(request, keys, "us-east-1", NOW)


@pytest.mark.parametrize(
    ("request_", "names", "signature"),
    [
        (
            StoreRequest("GET", "/test.txt", {}, {**HOST, "range": "bytes=0-9"}),
            "host;range;x-amz-content-sha256;x-amz-date",
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            StoreRequest(
                "PUT",
                "/test$file.text",
                {},
                {**HOST, "date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"},
                b"Welcome to Amazon S3.",
            ),
            "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        (
            StoreRequest("GET", "/", {"lifecycle": ""}, HOST),
            "host;x-amz-content-sha256;x-amz-date",
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        (
            StoreRequest("GET", "/", {"prefix": "J", "max-keys": "2"}, HOST),
            "host;x-amz-content-sha256;x-amz-date",
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ],
    ids=["get", "put", "lifecycle", "list"],
)  # fmt: skip
def test_a_signature_is_the_one_that_aws_publishes(request_, names, signature):
    headers = signed(request_)
    assert headers["x-amz-date"] == "20130524T000000Z"
    assert headers["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
        f"SignedHeaders={names},Signature={signature}"
    )
    assert headers.items() >= request_.headers.items()


def test_a_token_is_signed_too():
    request = StoreRequest("GET", "/a", {}, HOST)
    headers = signed(request, Keys(*KEYS[:2], "t"))
    assert headers["x-amz-security-token"] == "t"
    assert "x-amz-date;x-amz-security-token," in headers["authorization"]
    assert headers["authorization"] != signed(request)["authorization"]


def test_the_line_of_a_request_has_what_is_signed():
    request = StoreRequest("GET", "/a b/ü+~", {"prefix": "x/y z", "a": ""}, HOST)
    assert request.target == "/a%20b/%C3%BC%2B~?a=&prefix=x%2Fy%20z"
    assert StoreRequest("GET", "/a", {}, HOST).target == "/a"
