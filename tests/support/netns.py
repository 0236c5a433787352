"""Two machines on one: network namespaces joined by a cable, each with a host name of its own.

Takes root, ``ip`` and ``unshare``; where they are missing, :func:`missing` says so.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

ADDRESSES = {"a": "10.77.0.1", "b": "10.77.0.2"}


@dataclass(frozen=True)
class Node:
    """One of them."""

    letter: str
    namespace: str

    @property
    def host(self) -> str:
        return f"node-{self.letter}"

    @property
    def address(self) -> str:
        return ADDRESSES[self.letter]

    @property
    def device(self) -> str:
        return f"v{self.letter}"

    def command(self, *words: str) -> list[str]:
        """``words`` as a command line that runs on this node; its pid is the command's own."""
        named = f'hostname {self.host} && exec "$@"'
        return [
            *("ip", "netns", "exec", self.namespace),
            *("unshare", "--uts", "sh", "-c", named, "sh", *words),
        ]

    def cable(self, state: str) -> None:
        """Pull the node's cable (``down``) or put it back (``up``)."""
        _ip("-n", self.namespace, "link", "set", self.device, state)


def missing() -> str:
    """Why there can be no namespaces here; empty when there can."""
    tools = [tool for tool in ("ip", "unshare", "hostname") if shutil.which(tool) is None]
    if tools:
        return f"there is no {' and no '.join(tools)}"
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    try:
        with _namespace(f"rankscope-{os.getpid()}-try"):
            return ""
    except subprocess.CalledProcessError as error:
        return f"no network namespaces: {error.stderr.strip()}"


@contextlib.contextmanager
def two_nodes() -> Iterator[tuple[Node, Node]]:
    """Nodes ``a`` and ``b``, which reach each other and nothing else."""
    nodes = [Node(letter, f"rankscope-{os.getpid()}-{letter}") for letter in "ab"]
    with contextlib.ExitStack() as stack:
        for node in nodes:
            stack.enter_context(_namespace(node.namespace))
        first, second = nodes
        _ip(
            *("link", "add", first.device, "netns", first.namespace, "type", "veth"),
            *("peer", "name", second.device, "netns", second.namespace),
        )
        for node in nodes:
            inside = ("-n", node.namespace)
            _ip(*inside, "addr", "add", f"{node.address}/24", "dev", node.device)
            _ip(*inside, "link", "set", "lo", "up")
            node.cable("up")
        yield first, second


@contextlib.contextmanager
def _namespace(name: str) -> Iterator[None]:
    _ip("netns", "add", name)
    try:
        yield
    finally:
        _ip("netns", "del", name)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
