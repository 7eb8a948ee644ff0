"""Make certificates as an operator would have them: PEM files of an authority that is made for the test."""

from __future__ import annotations

import os
import ssl
from datetime import UTC, datetime

import trustme

TIME = 1_800_000_000
"""A time (Unix seconds) within the certificates' validity, unless they are made otherwise."""

PAST = datetime(2020, 1, 1, tzinfo=UTC)


class Authority:
    """An authority, and the directory to which its files are written."""

    def __init__(self, directory):
        self.directory = directory
        self.ca = trustme.CA()
        self.certificate = directory / f"authority-{id(self)}.pem"
        self.ca.cert_pem.write_to_path(str(self.certificate))

    def issue(self, name, *, stem="server", common_name=None, expires=None):
        """Return the paths of a certificate for `name` and of its key. Files of the same stem are replaced."""
        issued = self.ca.issue_cert(name, common_name=common_name, not_after=expires)
        certificate = self.directory / f"{stem}.pem"
        key = self.directory / f"{stem}.key"
        replace(certificate, b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        replace(key, issued.private_key_pem.bytes())
        return certificate, key

    def client(self, certificate=None, key=None):
        """Return a client's context that trusts this authority and may present a certificate."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        if certificate is not None:
            context.load_cert_chain(certificate, key)
        return context


def replace(path, content):
    """Replace a file as a whole or not at all, readable only for this user."""
    new = path.with_suffix(".new")
    descriptor = os.open(new, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    new.replace(path)


class StoppedClock:
    """A clock whose times are what they are set to."""

    def __init__(self, seconds=TIME):
        self.seconds = float(seconds)

    def wall_ns(self):
        return int(self.seconds * 1e9)

    def monotonic(self):
        return self.seconds
