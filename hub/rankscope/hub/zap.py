"""Who is let in: answers to ZAP requests (ZeroMQ RFC 27), one client key a role.

libzmq asks during each CURVE handshake; the role given as the user id comes back with every
message of that connection. Bytes of a peer that is not let in never reach the hub.
"""

from collections.abc import Mapping, Sequence

from rankscope.protocol.keys import Role

VERSION = b"1.0"
REQUEST_FRAMES = 7
PUBLIC_KEY_BYTES = 32


def roles_by_key(public_keys: Mapping[str, str], roles: Sequence[Role]) -> dict[bytes, Role]:
    """The roles to admit, by the 32 bytes of their CURVE public key."""
    from zmq.utils.z85 import decode

    return {
        decode(public_keys[role].encode("ascii")): role for role in roles if role in public_keys
    }


def answer(request: Sequence[bytes], roles: Mapping[bytes, Role]) -> list[bytes]:
    """The reply to one ZAP request: 200 with the role as user id, or 400."""
    number = request[1] if len(request) > 1 else b""
    if len(request) != REQUEST_FRAMES or request[0] != VERSION:
        return [VERSION, number, b"500", b"malformed request", b"", b""]
    mechanism, key = request[5], request[6]
    role = roles.get(key) if mechanism == b"CURVE" and len(key) == PUBLIC_KEY_BYTES else None
    if role is None:
        return [VERSION, number, b"400", b"this key is not one of the run", b"", b""]
    return [VERSION, number, b"200", b"OK", role.encode("ascii"), b""]
