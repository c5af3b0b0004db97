"""Ed25519 signatures of the ledger, with a key that is kept outside the warehouse."""

import os
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from pathlib import Path
from typing import TYPE_CHECKING

from predictor.errors import InputError

if TYPE_CHECKING:  # takes a twentieth of a second to import
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

KEY_VARIABLE = "SHOCKWAVE_LEDGER_KEY"
"""Environment variable with the file of an Ed25519 key in OpenSSH's format: a private key signs,
either verifies."""

_PURPOSE = b"shockwave ledger\0"
"""Prefix of every signed text, so that a signature is valid nowhere else."""


class Key:
    """An Ed25519 key, with or without its private part.

    Attributes:
        name: The public key, 32 bytes in base64.
    """

    def __init__(self, public: "Ed25519PublicKey", private: "Ed25519PrivateKey | None") -> None:
        self.name = b64encode(public.public_bytes_raw()).decode()
        self._private = private

    @property
    def signs(self) -> bool:
        """Whether the key has its private part."""
        return self._private is not None

    def sign(self, text: str) -> str:
        """Return the signature of a text, in base64."""
        assert self._private is not None
        return b64encode(self._private.sign(_PURPOSE + text.encode())).decode()


def read_key(warehouse: Path) -> Key | None:
    """Return the key that the environment names; None if it names none.

    Raises:
        InputError: The file is in the warehouse, or holds no Ed25519 key.
    """
    name = os.environ.get(KEY_VARIABLE)
    if not name:
        return None
    path = Path(name)
    if path.resolve().is_relative_to(warehouse.resolve()):
        problem = f"{path} is in the warehouse, where a forger would find it"
        raise InputError(KEY_VARIABLE, problem, "keep the key elsewhere")
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        if not path.is_file():  # reading a pipe or device might never end
            raise ValueError("no file")
        return _key(path.read_bytes())
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        problem = f"{path} holds no Ed25519 key without a passphrase ({error})"
        remedy = "make one with: ssh-keygen -t ed25519 -N '' -f FILE"
        raise InputError(KEY_VARIABLE, problem, remedy) from None


def _key(text: bytes) -> Key:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )
    from cryptography.hazmat.primitives.serialization import (
        load_ssh_private_key,
        load_ssh_public_key,
    )

    if b"PRIVATE KEY" in text:
        private = load_ssh_private_key(text, password=None)
        if isinstance(private, Ed25519PrivateKey):
            return Key(private.public_key(), private)
    else:
        public = load_ssh_public_key(text)
        if isinstance(public, Ed25519PublicKey):
            return Key(public, None)
    raise ValueError("another kind of key")


def is_signed(text: str, key: str, signature: str) -> bool:
    """Return whether a signature of a text is valid; `key` is as `Key.name`, both are base64."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        public = Ed25519PublicKey.from_public_bytes(b64decode(key, validate=True))
        public.verify(b64decode(signature, validate=True), _PURPOSE + text.encode())
    except (InvalidSignature, ValueError, NotBase64):
        return False
    return True
