"""Ed25519 keys in PEM files: a learner signs manifests, a policy checks who signed them.

A robot keeps them in ``keys/`` of its data folder: ``signing.pem`` (0600), ``signing.pub.pem``, and ``trusted/`` with
one public key a file. ``engram keys`` makes and lists them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from engram.core.errors import DAMAGED, InvalidInputError, WeightsError
from engram.core.paths import at_home

KEYS = "~/.local/share/engram/{robot_id}/keys"
"""Folder of a robot's keys."""
SIGNING, PUBLIC, TRUSTED = "signing.pem", "signing.pub.pem", "trusted"
ACCEPT = ("approved", "any", "none")
"""Which weights a policy takes from a learner."""


def keys_folder(robot_id: str) -> Path:
    """Return the folder of the keys of the robot ``robot_id``."""
    return at_home(KEYS.replace("{robot_id}", robot_id))


def fingerprint(key: Ed25519PublicKey) -> str:
    """Return the first 16 hex digits of the key's SHA-256: what people compare."""
    return hashlib.sha256(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).hexdigest()[:16]


def make_signing_key(folder: Path) -> Ed25519PublicKey:
    """Write a new key pair into ``folder``, the private one readable by its owner alone; return the public key.

    Raises:
        InvalidInputError: there is a key already, or the folder cannot be written.
    """
    key = Ed25519PrivateKey.generate()
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(folder / SIGNING, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secret)
    except FileExistsError:
        raise InvalidInputError(f"{folder / SIGNING} exists; move it away to make a new key") from None
    except OSError as error:
        raise InvalidInputError(f"{folder / SIGNING}: {error}") from None
    (folder / PUBLIC).write_bytes(_pem(key.public_key()))
    return key.public_key()


def trust(folder: Path, public: Path) -> Ed25519PublicKey:
    """Copy the public key in the PEM file ``public`` to the trusted ones in ``folder``; return it."""
    key = load_public_key(public)
    target = folder / TRUSTED
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = target / f"{fingerprint(key)}.pem"
    path.write_bytes(_pem(key))
    path.chmod(0o600)
    return key


def load_private_key(path: str | Path) -> Ed25519PrivateKey:
    """Return the key in the PEM file ``path``, which has no password.

    Raises:
        InvalidInputError: there is none, or others than its owner may read it.
    """
    file = at_home(path)
    try:
        mode = file.stat().st_mode
        key = load_pem_private_key(file.read_bytes(), password=None)
    except DAMAGED as error:
        raise InvalidInputError(f"signing_key {str(path)!r}: {error}; `engram keys new` makes one") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidInputError(f"signing_key {str(path)!r}: a {type(key).__name__}, expected an Ed25519 private key")
    if mode & 0o077:
        raise InvalidInputError(f"signing_key {str(path)!r}: others may read it (mode {mode & 0o777:o}); chmod 600 it")
    return key


def load_public_key(path: str | Path) -> Ed25519PublicKey:
    """Return the key in the PEM file ``path``; raises InvalidInputError if there is none."""
    file = at_home(path)
    try:
        key = load_pem_public_key(file.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"trusted_key {str(path)!r}: {error}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise InvalidInputError(f"trusted_key {str(path)!r}: a {type(key).__name__}, expected an Ed25519 public key")
    return key


def trusted_keys(path: str | Path) -> dict[str, Ed25519PublicKey]:
    """Return the public keys at ``path``, a PEM file or a folder of them, by fingerprint; none if it does not exist."""
    place = at_home(path)
    files = sorted(place.glob("*.pem")) if place.is_dir() else [place] if place.exists() else []
    return {fingerprint(key): key for key in map(load_public_key, files)}


def keys_for(accept: str, path: str, *, simulated: bool) -> Mapping[str, Ed25519PublicKey]:
    """Return whose signatures a policy node believes; empty: it needs none, or takes no weights.

    Args:
        accept: one of ``ACCEPT``.
        path: PEM file or folder of the trusted public keys; empty: none.
        simulated: whether the node drives a simulation: only there may candidates come unsigned.

    Raises:
        InvalidInputError: weights would be accepted without knowing from whom.
    """
    if accept == "none" or (accept == "any" and simulated and not path):
        return {}
    keys = trusted_keys(path) if path else {}
    if not keys:
        where = f"none in {path!r}" if path else "'trusted_key' is empty"
        raise InvalidInputError(
            f"accept is {accept!r}, but no key is trusted ({where}): anybody could send weights. Make a key with "
            "`engram keys new`, trust it with `engram keys trust`, or set accept to 'none'"
        )
    return keys


def check_trusted(what: str, signed: bytes, signature: bytes, keys: Mapping[str, Ed25519PublicKey]) -> str:
    """Return the fingerprint of the key in ``keys`` that made ``signature`` over ``signed``; WeightsError if none."""
    for name, key in keys.items():
        if _verifies(key, signature, signed):
            return name
    state = "is not by a trusted key or does not belong to it" if signature else "is missing"
    raise WeightsError(f"{what}: the signature {state}; trusted: {', '.join(keys) or '(none)'}")


def _verifies(key: Ed25519PublicKey, signature: bytes, signed: bytes) -> bool:
    try:
        key.verify(signature, signed)
    except InvalidSignature:
        return False
    return True


def _pem(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
