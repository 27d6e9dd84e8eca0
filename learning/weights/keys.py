"""Ed25519 keys in PEM files: a learner signs manifests, a policy checks who signed them."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from engram.core.errors import InvalidInputError


def load_private_key(path: str) -> Ed25519PrivateKey:
    """Return the key in the PEM file ``path``, which has no password; raises InvalidInputError if there is none."""
    try:
        key = load_pem_private_key(Path(path).expanduser().read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInputError(f"signing_key {path!r}: {error}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidInputError(f"signing_key {path!r}: a {type(key).__name__}, expected an Ed25519 private key")
    return key


def load_public_key(path: str) -> Ed25519PublicKey:
    """Return the key in the PEM file ``path``; raises InvalidInputError if there is none."""
    try:
        key = load_pem_public_key(Path(path).expanduser().read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"trusted_key {path!r}: {error}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise InvalidInputError(f"trusted_key {path!r}: a {type(key).__name__}, expected an Ed25519 public key")
    return key
