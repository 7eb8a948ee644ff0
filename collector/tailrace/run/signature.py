"""Sign the digest of a certificate with Ed25519, and verify signatures, with the optional package `cryptography`."""

from __future__ import annotations

from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tailrace.errors import ConfigError
from tailrace.run.certificate import CertificateSignature, Signed, digest


def load(path: Path) -> Ed25519PrivateKey:
    """Return the private key in a PEM file. Raise ConfigError if the file has no Ed25519 key."""
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror}"]) from error
    except (ValueError, TypeError) as error:
        raise ConfigError([f"{path}: is not an unencrypted private key in PEM: {error}"]) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError([f"{path}: must be an Ed25519 key"])
    return key


def sign(certificate: Signed, key: Ed25519PrivateKey) -> None:
    public = key.public_key().public_bytes_raw().hex()
    value = key.sign(digest(certificate)).hex()
    certificate.signature = CertificateSignature(public_key=public, value=value)


def differences(certificate: Signed, wanted: str | None) -> list[str]:
    """Return a message for each fault of a certificate's signature; an empty list if it is valid. `wanted` is the
    public key (hex) that must have made the signature. If it is None, accept any key, and also a missing signature."""
    signature = certificate.signature
    if signature is None:
        return [] if wanted is None else ["it is not signed"]
    if wanted is not None and signature.public_key != wanted.lower():
        return [f"it is signed by another key: {signature.public_key}"]
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature.public_key))
        key.verify(bytes.fromhex(signature.value), digest(certificate))
    except (InvalidSignature, ValueError):
        return ["its signature does not match"]
    return []
