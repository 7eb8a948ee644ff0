"""A listener's certificate files: which are used, what is said of those that are not."""

from __future__ import annotations

import os
import ssl
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

from tailrace.security.guard import Certificates, UnusableError
from tests.security.authority import PAST, TIME, Authority, replace


def handshake(server, client, *, name="tailrace.test"):
    """Both ends' objects after a handshake in memory. Raise ssl.SSLError of the end that refuses."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(back, there, server_hostname=name)
    answering = server.wrap_bio(there, back, server_side=True)
    for side in (asking, answering) * 3:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return asking, answering


def serial(server, client):
    """The number of the certificate that a server shows."""
    asking, _ = handshake(server, client)
    return asking.getpeercert()["serialNumber"]


def serial_of(path):
    return f"{x509.load_pem_x509_certificate(path.read_bytes()).serial_number:X}"


@pytest.fixture
def pair(authority):
    return authority.issue("tailrace.test")


@pytest.fixture
def certificates(pair, clock):
    return Certificates(*pair, None, clock=clock)


def refusal(clock, certificate, key, authority=None):
    with pytest.raises(UnusableError) as caught:
        Certificates(certificate, key, authority, clock=clock)
    return caught.value


def test_a_client_that_trusts_the_authority_is_served(certificates, authority, pair):
    assert certificates.problem is None
    shown = serial(certificates.context(), authority.client())
    assert int(shown, 16) == int(serial_of(pair[0]), 16)


def test_nobody_gets_less_than_tls_1_2(certificates, authority):
    client = authority.client()
    client.minimum_version = client.maximum_version = ssl.TLSVersion.TLSv1_2
    assert handshake(certificates.context(), client)[0].version() == "TLSv1.2"
    client.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        client.minimum_version = ssl.TLSVersion.TLSv1_1
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        client.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError, match="UNSUPPORTED_PROTOCOL"):
        handshake(certificates.context(), client)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_that_only_sends_is_sent_nothing_after_the_handshake(
    certificates, authority, version
):
    """Bytes that it leaves unread make the kernel reset its connection, and what it sent last is lost."""
    client = authority.client()
    client.maximum_version = version
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(back, there, server_hostname="tailrace.test")
    answering = certificates.context().wrap_bio(there, back, server_side=True)
    for side in (asking, answering) * 3:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert asking.version() == version.name.replace("_", ".")
    assert back.pending == 0


def test_with_an_authority_only_its_certificates_are_let_in(pair, clock, authority, tmp_path):
    server = Certificates(*pair, authority.certificate, clock=clock).context()
    mine = authority.issue("me.test", stem="me")
    _, answering = handshake(server, authority.client(*mine))
    assert ("DNS", "me.test") in answering.getpeercert()["subjectAltName"]
    with pytest.raises(ssl.SSLError, match="did not return a certificate"):
        handshake(server, authority.client())
    stranger = Authority(tmp_path).issue("me.test", stem="stranger")
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        handshake(server, authority.client(*stranger))
    old = authority.issue("me.test", stem="old", expires=PAST)
    with pytest.raises(ssl.SSLError, match="certificate has expired"):
        handshake(server, authority.client(*old))


# Files that change


def test_new_files_are_used_from_the_next_look_on(certificates, authority, clock, pair):
    before = certificates.context()
    authority.issue("tailrace.test")
    assert certificates.context() is before
    clock.seconds += 1
    after = certificates.context()
    assert after is not before
    assert int(serial(after, authority.client()), 16) == int(serial_of(pair[0]), 16)
    clock.seconds += 1
    assert certificates.context() is after


def test_half_a_pair_is_not_used_and_said_until_the_other_half_is_there(
    certificates, authority, clock, pair
):
    certificate, key = pair
    before = certificates.context()
    new_certificate, new_key = authority.issue("tailrace.test", stem="new")
    replace(certificate, new_certificate.read_bytes())
    clock.seconds += 1
    assert certificates.context() is before
    assert certificates.problem == (
        f"{key}: is not the key of {certificate}; the earlier content is still used"
    )
    replace(key, new_key.read_bytes())
    clock.seconds += 1
    assert certificates.context() is not before
    assert certificates.problem is None


@pytest.mark.parametrize("content", [b"", b"-----BEGIN CERTIFICATE-----\nMII", b"\0" * 3000])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_whatever_becomes_of_a_file_what_was_good_is_kept(pair, authority, clock, which, content):
    paths = [*pair, authority.certificate]
    certificates = Certificates(*paths, clock=clock)
    before = certificates.context()
    good = paths[which].read_bytes()
    replace(paths[which], content)
    clock.seconds += 1
    assert certificates.context() is before
    assert certificates.problem.startswith(f"{paths[which]}: ")
    paths[which].unlink()
    clock.seconds += 1
    assert certificates.problem.startswith(f"{paths[which]}: cannot be read: No such file")
    replace(paths[which], good)
    clock.seconds += 1
    assert certificates.problem is None


def test_written_in_place_with_the_same_size_and_time_it_is_tried_again(
    certificates, authority, clock, pair
):
    """A look between two writes of one tick of the kernel's clock."""
    certificate, _ = pair
    good, times = certificate.read_bytes(), certificate.stat()
    certificate.write_bytes(b"\0" * len(good))
    clock.seconds += 1
    assert certificates.problem is not None
    certificate.write_bytes(good)
    os.utime(certificate, ns=(times.st_atime_ns, times.st_mtime_ns))
    clock.seconds += 1
    assert certificates.problem is None


def test_one_that_has_expired_does_not_replace_one_that_is_valid(
    certificates, authority, clock, pair
):
    before = certificates.context()
    authority.issue("tailrace.test", expires=PAST)
    clock.seconds += 1
    assert certificates.context() is before
    assert certificates.problem == (
        f"{pair[0]}: expired at 2020-01-01 00:00:00+00:00; the earlier content is still used"
    )


def test_one_that_expires_while_in_use_is_said(authority, clock):
    certificate, key = authority.issue(
        "tailrace.test", expires=datetime.fromtimestamp(TIME + 60, UTC)
    )
    certificates = Certificates(certificate, key, None, clock=clock)
    assert certificates.problem is None
    assert certificates.expires == TIME + 60
    clock.seconds += 61
    assert certificates.problem.startswith(f"{certificate}: expired at 2027-01-15 08:01:00")
    authority.issue("tailrace.test")
    clock.seconds += 1
    assert certificates.problem is None


def test_one_that_has_expired_does_not_keep_the_daemon_from_starting(authority, clock):
    certificate, key = authority.issue("tailrace.test", expires=PAST)
    certificates = Certificates(certificate, key, None, clock=clock)
    assert certificates.problem == f"{certificate}: expired at 2020-01-01 00:00:00+00:00"


# Files that cannot be used at all


def test_a_file_that_is_not_there(pair, clock, tmp_path):
    certificate, key = pair
    nowhere = tmp_path / "nowhere"
    for error in (
        refusal(clock, nowhere, key),
        refusal(clock, certificate, nowhere),
        refusal(clock, certificate, key, nowhere),
    ):
        assert error.path == nowhere
        assert error.message == "cannot be read: No such file or directory"


def test_a_directory_or_a_pipe_is_not_a_file(pair, clock, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert refusal(clock, tmp_path / "pipe", pair[1]).message == "is not a file"
    assert refusal(clock, tmp_path, pair[1]).message == "cannot be read: Is a directory"


def test_two_files_in_each_others_place(pair, clock):
    certificate, key = pair
    assert refusal(clock, key, certificate).message == "holds no certificate in PEM"
    assert refusal(clock, certificate, certificate).message == "holds no private key in PEM"


def test_a_key_of_another_certificate(pair, clock, authority):
    _, other = authority.issue("other.test", stem="other")
    error = refusal(clock, pair[0], other)
    assert (error.path, error.message) == (other, f"is not the key of {pair[0]}")


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(pair, clock):
    certificate, key = pair
    private = load_pem_private_key(key.read_bytes(), None)
    sealed = BestAvailableEncryption(b"secret")
    replace(key, private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, sealed))
    error = refusal(clock, certificate, key)
    assert (error.path, error.message) == (
        key, "is encrypted; allowed: a key without a password"
    )  # fmt: skip


def test_a_key_that_everybody_can_read(pair, clock):
    certificate, key = pair
    key.chmod(0o640)
    Certificates(certificate, key, None, clock=clock)
    key.chmod(0o604)
    assert refusal(clock, certificate, key).message == (
        f"can be read by every user of this host; run chmod o-r {key}"
    )


def test_a_certificate_for_clients_is_none_for_a_server(clock, authority, tmp_path):
    certificate, key = authority.issue("tailrace.test")
    mine = x509.load_pem_x509_certificate(certificate.read_bytes())
    private = load_pem_private_key(key.read_bytes(), None)
    builder = (
        x509.CertificateBuilder()
        .subject_name(mine.subject)
        .issuer_name(mine.subject)
        .public_key(private.public_key())
        .serial_number(1)
        .not_valid_before(mine.not_valid_before_utc)
        .not_valid_after(mine.not_valid_after_utc)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=True)
    )
    signed = builder.sign(private, mine.signature_hash_algorithm)
    replace(certificate, signed.public_bytes(Encoding.PEM))
    error = refusal(clock, certificate, key)
    assert error.path == certificate
    assert "purpose" in error.message
