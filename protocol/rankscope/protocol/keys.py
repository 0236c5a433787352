"""CURVE keys: one pair for the hub and one for each role, made once for each run.

A key file holds all a client needs to be let in except the endpoint: its own pair and the hub's
public key. SPEC.md states what the roles may do and whom they protect against.
"""

from pathlib import Path
from typing import Literal

import msgspec

from rankscope.protocol.exits import UserError
from rankscope.protocol.files import read_private, write_private

Role = Literal["agent", "operator", "viewer"]
ROLES: tuple[Role, ...] = ("agent", "operator", "viewer")

MAX_KEY_FILE_BYTES = 4096
Z85_CHARS = 40


class KeyPair(msgspec.Struct, frozen=True):
    """A CURVE25519 pair, Z85-encoded (40 characters each)."""

    public: str
    secret: str

    def __repr__(self) -> str:
        """Never shows the secret: tracebacks and logs print this."""
        return f"KeyPair(public={self.public!r})"


class ClientKey(msgspec.Struct, frozen=True):
    """A role's key file: ``keys/agent.json``, ``keys/operator.json``, ``keys/viewer.json``."""

    role: Role
    run: str
    public: str
    secret: str
    hub_public: str

    def __repr__(self) -> str:
        return f"ClientKey(role={self.role!r}, run={self.run!r}, public={self.public!r})"


def new_pair() -> KeyPair:
    """A fresh pair from libsodium (or tweetnacl) through libzmq: the one use of zmq here."""
    import zmq

    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode("ascii"), secret.decode("ascii"))


def write_client_key(path: Path, key: ClientKey) -> None:
    """Write a key file with mode 0600, atomically."""
    write_private(path, msgspec.json.format(msgspec.json.encode(key)) + b"\n")


def read_client_key(path: Path) -> ClientKey:
    """The key in ``path``. Raises :class:`UserError` for every way in which it can be wrong."""

    def recognise(raw: bytes) -> ClientKey:
        try:
            key = msgspec.json.decode(raw, type=ClientKey)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise UserError(
                f"{path} is not a rankscope key file; take keys/viewer.json of the run's directory"
            ) from None
        if any(len(part) != Z85_CHARS for part in (key.public, key.secret, key.hub_public)):
            raise UserError(
                f"{path} holds a damaged key; take keys/viewer.json of the run's directory again"
            )
        return key

    return recognise(read_private(path, MAX_KEY_FILE_BYTES, "key file", recognise))
